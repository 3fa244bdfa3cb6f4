"use strict";
const figures = [...document.querySelectorAll("figure")];
const byClass = document.getElementById("class");
const byField = document.getElementById("field");
const text = document.getElementById("text");
const drawn = document.getElementById("drawn");
const shown = document.getElementById("shown");

function hasText(figure) {
	const wanted = text.value.toLowerCase();
	const chosen = byField.value;
	return wanted === "" || [...figure.querySelectorAll("dl > div")].some((row) =>
		(chosen === "" || row.dataset.field === chosen) &&
		row.querySelector("dd").textContent.toLowerCase().includes(wanted));
}

function update() {
	let count = 0;
	for (const figure of figures) {
		figure.hidden = (byClass.value !== "" && figure.dataset.label !== byClass.value) ||
			!hasText(figure);
		count += figure.hidden ? 0 : 1;
	}
	shown.textContent = `${count} of ${figures.length} shown`;
	document.body.classList.toggle("plain", !drawn.checked);
}

document.querySelector("form").addEventListener("input", update);
document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
update();
