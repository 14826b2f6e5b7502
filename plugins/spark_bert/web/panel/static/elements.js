// Making elements and drawings, and showing them.

/** Make an element. Texts become text nodes, so nothing in the data is ever read as HTML. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children)
}

/** Make an element of a drawing. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), properties, children)
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else element.setAttribute(name, value === true ? '' : value)
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined))
  return element
}

/** Place an element on a line: where it begins, and how wide it is, in percent. */
export function place(element, left, width = null) {
  element.style.left = `${left}%`
  if (width !== null) element.style.width = `${width}%`
  return element
}

/** A share of a line in percent, not beyond its ends. */
export const share = (value) => 100 * Math.min(Math.max(value, 0), 1)

/** Replace what is in the element with the id. */
export function show(id, ...children) {
  const element = document.getElementById(id)
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined))
  return element
}
