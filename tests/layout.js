// What is wrong with the layout of a page: text that is written over other text, and blocks that cannot be read whole.
(() => {
  for (const animation of document.getAnimations()) animation.cancel();  // a sidebar may still be on its way
  // The part of a rectangle that the element's ancestors let through; nothing where it is hidden.
  const seen = (rectangle, element) => {
    let [left, top, right, bottom] = [rectangle.left, rectangle.top, rectangle.right, rectangle.bottom];
    for (let e = element; e && e !== document.documentElement; e = e.parentElement) {
      const style = getComputedStyle(e);
      if (style.overflowX !== "visible" || style.overflowY !== "visible" || style.clipPath !== "none") {
        const box = e.getBoundingClientRect();
        [left, top] = [Math.max(left, box.left), Math.max(top, box.top)];
        [right, bottom] = [Math.min(right, box.right), Math.min(bottom, box.bottom)];
      }
    }
    return right - left > 1 && bottom - top > 1 ? {left, top, right, bottom} : null;
  };
  const rotated = (element) => {
    const matrix = element.closest("svg") && element.getScreenCTM && element.getScreenCTM();
    return matrix && Math.abs(matrix.b) > 1e-6;  // the box around slanted text says little
  };
  // Whether text goes on where no ancestor lets it be seen; code, tables and figures may scroll, pages and their menus may not.
  const lost = (rectangle, element) => {
    let edge = window.innerWidth;
    for (let e = element; e && e !== document.documentElement; e = e.parentElement) {
      const {overflowX: overflow, textOverflow} = getComputedStyle(e);
      if (textOverflow === "ellipsis" || (/auto|scroll/.test(overflow) && !e.querySelector("h1, nav"))) return false;
      if (overflow !== "visible") edge = Math.min(edge, e.getBoundingClientRect().right);
    }
    return rectangle.right > edge + 1;
  };
  const skipped = "script,style,noscript,title,desc,mjx-container,math,dialog:not([open])";
  const boxes = [], cut = [];
  const range = document.createRange();
  const walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, parent = node.parentElement;
    if (!node.data.trim() || !parent || parent.closest(skipped) || rotated(parent)) continue;
    if (!parent.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    range.selectNodeContents(node);
    for (const rectangle of range.getClientRects()) {
      const box = seen(rectangle, parent);
      const text = node.data.trim().slice(0, 40);
      if (box) boxes.push({...box, node, text});
      if (box && lost(rectangle, parent)) cut.push(text);
    }
  }
  boxes.sort((a, b) => a.top - b.top);
  const overlaps = [];
  boxes.forEach((a, i) => {
    for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom; j++) {
      const b = boxes[j];
      const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const height = Math.min(a.bottom, b.bottom) - b.top;
      // Line boxes of neighbouring lines touch: a third of the lower one's height is more than that.
      if (a.node !== b.node && width > 2 && height > 0.35 * Math.min(a.bottom - a.top, b.bottom - b.top))
        overlaps.push(`"${a.text}" and "${b.text}"`);
    }
  });
  const clipped = [...document.querySelectorAll("pre")]
    .filter((e) => e.scrollWidth > e.clientWidth + 1)
    .map((e) => e.textContent.slice(0, 60));
  const wide = document.documentElement.scrollWidth - window.innerWidth;
  const broken = [...document.images].filter((e) => e.naturalWidth === 0).map((e) => e.src);
  return {n_texts: boxes.length, overlaps: overlaps.slice(0, 5), cut: cut.slice(0, 5), clipped, wide, broken};
})()
