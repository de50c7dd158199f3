const panel = document.getElementById("panel");

function fill(template) {
  panel.replaceChildren(template.content.cloneNode(true));
}

function choose(number) {
  all("nav button").forEach((b) => b.classList.toggle("current", b.dataset.step === number));
  all(".step").forEach((s) => (s.hidden = s.dataset.step !== number));
  showFirstBoxes();
  unselect();
}

function unselect() {
  all(".selected, .peer").forEach((b) => b.classList.remove("selected", "peer"));
  fill(document.querySelector(".step:not([hidden]) .changes"));
}

function select(box) {
  unselect();
  box.classList.add("selected");
  const peers = all(".forward .box, .phases .box", box.closest(".step"));
  if (peers.includes(box)) {
    peers.filter((b) => b.dataset.peer === box.dataset.peer).forEach((b) => b.classList.add("peer"));
  }
  fill(document.querySelector(`[data-detail="${box.dataset.box}"]`));
}

document.addEventListener("click", (event) => {
  const step = event.target.closest("nav button"), button = event.target.closest(".switch");
  const box = event.target.closest(".box");
  if (step) history.replaceState(null, "", "#" + step.dataset.step), choose(step.dataset.step);
  else if (button) document.body.classList.toggle("every"), showDetail();
  else if (box) select(box);
  else if (event.target.closest("#stage")) unselect();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches(".box")) select(event.target);
});

function showDetail() {
  const every = document.body.classList.contains("every");
  all(".phases").forEach((d) => (d.hidden = every));
  all(".operators").forEach((d) => (d.hidden = !every));
  all(".switch").forEach((b) => (b.textContent = every ? "show phases" : "show all operators"));
  showFirstBoxes();
  unselect();
}

document.querySelector("details").open = innerWidth > 1000;
const asked = document.querySelector(`nav button[data-step="${CSS.escape(location.hash.slice(1))}"]`);
choose((asked || all("nav button").at(-1)).dataset.step);
