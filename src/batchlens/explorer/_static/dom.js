// Elements.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An SVG element with attributes and children. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  element.append(...children);
  return element;
}

/** An HTML element with properties and children. */
export function html(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/** The value of a custom property of the page's style. */
export function styled(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const widths = new Map();

/** How wide an element is. Asked of the browser once: between two changes of the page it would lay all of it out anew. */
export function widthOf(element) {
  if (!widths.has(element)) widths.set(element, element.clientWidth);
  return widths.get(element);
}

/** To be called where elements have another size. */
export function forgetWidths() {
  widths.clear();
}
