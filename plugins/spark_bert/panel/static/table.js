// Dev rows with their texts, labels, and predictions.
import { h } from './page.js'
import { percent, score } from './format.js'

export function rowsTable(rows) {
  if (!rows.length) return h('p', { class: 'empty' }, 'There are no such rows.')
  const errors = rows.some((row) => typeof row.error === 'number')
  return h('table', { class: 'rows' },
    h('thead', {}, h('tr', {}, h('th', { class: 'number' }, 'row'), h('th', {}, 'text'), h('th', {}, 'label'), h('th', {}, 'prediction'), h('th', { class: 'number' }, errors ? 'error' : 'confidence'))),
    h('tbody', {}, rows.map((row) => h('tr', {}, h('td', { class: 'number muted' }, String(row.row)),
      h('td', { class: 'text' }, row.texts.map((text) => h('p', {}, text))),
      h('td', {}, row.label), h('td', { class: row.wrong ? 'wrong' : null }, row.prediction),
      h('td', { class: 'number' }, typeof row.error === 'number' ? score(row.error) : typeof row.confidence === 'number' ? percent(row.confidence) : '–')))))
}
