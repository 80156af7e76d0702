// Highlights a design in all pictures of the report while the pointer is on it; a click pins it.
(() => {
  const places = [...document.querySelectorAll("[data-design]")];
  const sections = [...document.querySelectorAll("section")].filter((section) => section.querySelector(".said"));
  let pinned = null;
  const show = (design) => {
    const isShown = (place) => place.dataset.design === design;
    places.forEach((place) => place.classList.toggle("on", isShown(place)));
    sections.forEach((section) => {
      // A design has other figures in each result.
      const named = [...section.querySelectorAll("[data-design]")].find(isShown);
      section.querySelector(".said").textContent = named ? named.dataset.text : "";
    });
  };
  places.forEach((place) => {
    place.addEventListener("pointerenter", () => show(place.dataset.design));
    place.addEventListener("pointerleave", () => show(pinned));
    place.addEventListener("click", () => {
      pinned = pinned === place.dataset.design ? null : place.dataset.design;
      show(pinned);
    });
  });
})();
