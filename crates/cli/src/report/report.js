// Highlights a design in all pictures of a section while the pointer is on it; a click pins it.
document.querySelectorAll("section").forEach((section) => {
  const said = section.querySelector(".said");
  let pinned = null;
  const places = [...section.querySelectorAll("[data-design]")];
  const show = (design) => {
    places.forEach((place) => place.classList.toggle("on", place.dataset.design === design));
    const named = places.find((place) => place.dataset.design === design);
    if (said) said.textContent = named ? named.dataset.text : "";
  };
  places.forEach((place) => {
    place.addEventListener("pointerenter", () => show(place.dataset.design));
    place.addEventListener("pointerleave", () => show(pinned));
    place.addEventListener("click", () => {
      pinned = pinned === place.dataset.design ? null : place.dataset.design;
      show(pinned);
    });
  });
});
