// What several pages have in common.
import { h, show } from './elements.js'
import { address, open, parameters } from './page.js'
import { formatted, runName, time } from './format.js'

export const chip = (kind, text) => h('span', { class: `chip ${kind}` }, text)
export const none = () => formatted(null)
export const when = (value) => (typeof value === 'number' ? time(value) : '–')

/** A p-value. */
export const chance = (value) => (value < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(2))))

export const tile = (title, value, kind = '') =>
  h('div', { class: `tile ${kind}` }, h('span', { class: 'title' }, title), h('span', { class: 'value' }, value))

/** A link to the page of a run. */
export const runLink = ({ run, dag_id, run_id }) =>
  h('a', { href: address('run', { run }), title: run }, runName(run, dag_id, run_id))

/**
 * A table. Each heading is a title and the class of its column, such as `number` or `nowrap`; each cell is a text, an
 * element, or a list of them.
 */
export const table = (kind, headings, rows) =>
  h('div', { class: 'scroll' }, h('table', { class: `rows ${kind}` },
    h('thead', {}, h('tr', {}, headings.map(([title, column]) => h('th', { scope: 'col', class: column }, title)))),
    h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((cell, at) => h('td', { class: headings[at][1] }, cell)))))))

/** The filters of a page: a search for words, and more. */
export function filters(page, placeholder, ...more) {
  function search(event) {
    event.preventDefault()
    open(page, { q: event.target.elements.q.value.trim() })
  }
  return h('form', { class: 'filters', role: 'search', onsubmit: search },
    h('input', { type: 'search', name: 'q', value: parameters.q || '', placeholder, 'aria-label': placeholder }), more)
}

/** A list to choose a parameter of a page from. Each value has a text. */
export function select(page, name, all, values) {
  const now = parameters[name] || ''
  const known = now && !values.some(([value]) => value === now) ? [[now, now], ...values] : values
  return h('select', { 'aria-label': all, onchange: (event) => open(page, { [name]: event.target.value }) },
    h('option', { value: '' }, all), known.map(([value, text]) => h('option', { value, selected: value === now }, text)))
}

const shown = new Map()

/** Fill an element if what it shows has changed, so that nothing moves under a reader's hand. */
export function renew(id, found, draw) {
  const text = JSON.stringify(found)
  if (shown.get(id) !== text) show(id, draw(found))
  shown.set(id, text)
}
