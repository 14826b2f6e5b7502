// Dev rows with their texts, labels, and predictions, and what tables are sorted and turned with.
import { h } from './elements.js'
import { explained, legend } from './explanation.js'
import { address, open } from './page.js'
import { count, counted, isNumeric, percent, score } from './format.js'

export function rowsTable(rows) {
  if (!rows.length) return h('p', { class: 'empty' }, 'There are no such rows.')
  const errors = rows.some((row) => typeof row.error === 'number')
  const words = rows.some((row) => row.explanation.length) ? legend() : null
  return [words, h('table', { class: 'rows' },
    h('thead', {}, h('tr', {}, h('th', { class: 'number' }, 'row'), h('th', {}, 'text'), h('th', {}, 'label'), h('th', {}, 'prediction'), h('th', { class: 'number' }, errors ? 'error' : 'confidence'))),
    h('tbody', {}, rows.map((row) => h('tr', {}, rowNumber(row), texts(row),
      h('td', {}, row.label), h('td', { class: row.wrong ? 'wrong' : null }, row.prediction),
      h('td', { class: 'number' }, typeof row.error === 'number' ? score(row.error) : typeof row.confidence === 'number' ? percent(row.confidence) : '–')))))]
}

/** Dev rows with the answers of several models. `headings` are those of the models, as elements. */
export function answersTable(rows, headings) {
  if (!rows.length) return h('p', { class: 'empty' }, 'There are no such rows.')
  const answer = ({ prediction, wrong, confidence }) => h('td', { class: wrong ? 'wrong' : null, title: typeof confidence === 'number' ? `confidence ${percent(confidence)}` : null },
    /^-?\d+\.\d{5,}$/.test(prediction) ? score(Number(prediction)) : prediction)
  return h('div', { class: 'scroll' }, h('table', { class: 'rows' },
    h('thead', {}, h('tr', {}, h('th', { class: 'number' }, 'row'), h('th', {}, 'text'), h('th', {}, 'label'), headings.map((heading) => h('th', {}, heading)))),
    h('tbody', {}, rows.map((row) => h('tr', {}, rowNumber(row), texts(row), h('td', {}, row.label), row.answers.map(answer))))))
}

const rowNumber = ({ row }) => h('td', { class: 'number muted' }, String(row))
const texts = (row) => h('td', { class: 'text' }, (row.explanation?.length ? explained(row) : row.texts).map((text) => h('p', {}, text)))

/** Which part of a table is shown, and the buttons to its other pages, whose addresses have the same parameters. */
export function pager(name, { page, size, total }, thing, kept) {
  const pages = Math.ceil(total / size)
  const turn = (to, text) => h('button', { disabled: to < 1 || to > pages, onclick: () => location.assign(address(name, { ...kept, page: to })) }, text)
  return h('nav', { class: 'pager', 'aria-label': 'Pages' },
    h('span', {}, total ? `${count((page - 1) * size + 1)} to ${count(Math.min(page * size, total))} of ${counted(total, thing)}` : ''),
    pages > 1 ? [turn(page - 1, 'Previous'), turn(page + 1, 'Next')] : null)
}

/** The heading of a column, which sorts the table of a page by it. */
export function heading(page, { key, title, kind }, sort) {
  const down = sort === `-${key}`
  const up = sort === key
  const next = down ? key : `-${key}`
  const order = down ? 'descending' : up ? 'ascending' : null
  return h('th', { scope: 'col', class: isNumeric(kind) ? 'number' : null, 'aria-sort': order },
    h('button', { onclick: () => open(page, { sort: next }), title: `Sort by ${title}` }, title, order ? h('span', { class: 'arrow' }, down ? '↓' : '↑') : null))
}
