"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
// Pictures stand in views that scroll, so that moving them is what browsers do by wheel, keys and touch.
const MOST = 4, LEAST = 0.1;
const pictureOf = (view) => view.querySelector("svg");
const shownViews = () => all(".step:not([hidden]) .view").filter((view) => view.checkVisibility());

// Moves pictures that are wider than their views to their first boxes, unless they have been moved before.
function showFirstBoxes() {
  shownViews().filter((view) => view.scrollLeft === 0).forEach((view) => {
    const box = view.querySelector(".box").getBoundingClientRect(), frame = view.getBoundingClientRect();
    view.scrollLeft = (box.left + box.right - frame.left - frame.right) / 2;
  });
}

// Sets the zoom of all views of a kind, so that steps can be compared; a point of the screen shows the same place.
function zoomTo(view, zoom, at) {
  const picture = pictureOf(view), frame = view.getBoundingClientRect(), old = picture.getBoundingClientRect();
  const [x, y] = at || [frame.left + view.clientWidth / 2, frame.top + view.clientHeight / 2];
  all(`.view[data-kind=${view.dataset.kind}]`).forEach((v) => {
    v.classList.toggle("zoomed", zoom !== null);
    v.style.setProperty("--zoom", zoom === null ? 1 : Math.min(MOST, Math.max(LEAST, zoom)));
  });
  const now = picture.getBoundingClientRect(), scale = now.width / old.width;
  view.scrollBy(now.left + scale * (x - old.left) - x, now.top + scale * (y - old.top) - y);
}

function zoomBy(view, factor, at) {
  const picture = pictureOf(view);
  zoomTo(view, (factor * picture.getBoundingClientRect().width) / picture.viewBox.baseVal.width, at);
}

function zoomToWhole(view) {
  const { width, height } = pictureOf(view).viewBox.baseVal;
  const most = parseFloat(getComputedStyle(view).maxHeight);
  zoomTo(view, Math.min(1, view.clientWidth / width, most / height));
}

const zooms = {
  "+": (view) => zoomBy(view, 1.25),
  "-": (view) => zoomBy(view, 0.8),
  "f": zoomToWhole,
  "0": (view) => zoomTo(view, null),
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-zoom]");
  if (button) zooms[button.dataset.zoom](shownViews().find((view) => view.closest("figure").contains(button)));
});
document.addEventListener("keydown", (event) => {
  const zoom = zooms[event.key === "=" ? "+" : event.key];
  if (!zoom || event.ctrlKey || event.metaKey || event.altKey) return;
  const focused = document.activeElement.closest(".view");
  (focused ? [focused] : shownViews()).forEach((view) => zoom(view));
});
document.addEventListener("wheel", (event) => {
  const view = event.target.closest(".view");
  if (!view || !(event.ctrlKey || event.metaKey)) return; // pinching has ctrlKey, too
  event.preventDefault();
  zoomBy(view, 1.25 ** (-event.deltaY / 100), [event.clientX, event.clientY]);
}, { passive: false });

let dragged = null, moved = false;
document.addEventListener("pointerdown", (event) => {
  moved = false;
  dragged = event.pointerType === "mouse" && event.button === 0 ? event.target.closest(".view") : null;
});
document.addEventListener("pointermove", (event) => {
  if (!dragged) return;
  if (!moved && Math.hypot(event.movementX, event.movementY) < 2) return; // a hand that clicks is not still
  moved = true;
  dragged.setPointerCapture(event.pointerId);
  dragged.scrollBy(-event.movementX, -event.movementY);
});
document.addEventListener("pointerup", () => (dragged = null));
document.addEventListener("click", (event) => moved && event.stopPropagation(), true); // the end of a drag
