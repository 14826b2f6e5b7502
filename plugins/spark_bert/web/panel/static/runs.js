// The table of all runs. What it shows is in the address, so a reload or a link shows the same again.
import { h, show } from './elements.js'
import { fetchJson, open, parameters, repeat } from './page.js'
import { filters, runLink, select } from './parts.js'
import { count, counted, formatted, isNumeric, runName } from './format.js'
import { heading, pager } from './table.js'
import { choiceBox, keepFocus, showChoice } from './choice.js'

const PAUSE = 4 // seconds until the table is fetched again: what is new is seen within 5
let choices = []

function filter(table) {
  const list = (name, all, values) => select('runs', name, all, values.map((value) => [value, value]))
  return filters('runs', 'Find a run, task, or encoder',
    list('state', 'All states', table.states), list('dag', 'All Dags', table.dags), list('task', 'All tasks', table.tasks),
    h('button', { type: 'button', onclick: chooseColumns }, 'Columns'),
    Object.keys(parameters).length ? h('a', { class: 'reset', href: 'runs' }, 'Reset') : null)
}

function chooseColumns() {
  const shown = new Set(shownColumns)
  const dialog = h('dialog', { class: 'columns' },
    h('form', { method: 'dialog', onsubmit: () => take(dialog) },
      h('h2', {}, 'Columns'),
      h('div', { class: 'choices' }, h('div', {}, choices.map(({ key, title }) =>
        h('label', {}, h('input', { type: 'checkbox', name: key, checked: shown.has(key) }), title)))),
      h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => open('runs', { columns: '' }) }, 'Default columns'),
        h('button', { class: 'main' }, 'Show')),
    ),
  )
  dialog.addEventListener('close', () => dialog.remove())
  document.body.append(dialog)
  dialog.showModal()
}

function take(dialog) {
  const wanted = [...dialog.querySelectorAll('input:checked')].map((input) => input.name)
  // Those that are shown already keep their order.
  const kept = shownColumns.filter((key) => wanted.includes(key))
  open('runs', { columns: [...kept, ...wanted.filter((key) => !kept.includes(key))].join(',') })
}

let shownColumns = []

function cell(row, { kind }, value) {
  if (kind === 'run') return h('td', { class: 'run' }, runLink(row))
  return h('td', { class: isNumeric(kind) ? 'number' : null }, formatted(value, kind))
}

function body(table) {
  if (!table.rows.length) return h('p', { class: 'empty' }, table.all ? 'No run fits these filters.' : 'There are no runs yet. Trigger the Dag finetune, and it appears here within seconds.')
  return h('div', { class: 'scroll' }, h('table', { class: 'runs' },
    h('thead', {}, h('tr', {}, h('th', { class: 'choose', 'aria-label': 'Compare' }), table.columns.map((column) => heading('runs', column, table.sort)))),
    h('tbody', {}, table.rows.map((row) =>
      h('tr', { class: row.state, 'data-run': row.run },
        h('td', { class: 'choose' }, choiceBox(row.run, runName(row.run, row.dag_id, row.run_id))), table.columns.map((column, at) => cell(row, column, row.values[at]))))),
  ))
}

async function refresh() {
  const table = await fetchJson('runs', parameters)
  choices = table.choices
  shownColumns = table.columns.map(({ key }) => key)
  if (!document.getElementById('table')) {
    show('page',
      h('header', {}, h('h1', {}, 'Quality'), h('p', { id: 'summary' })),
      filter(table), h('div', { id: 'table' }), h('div', { id: 'pager' }), h('div', { id: 'choice', role: 'status' }))
  }
  const running = table.running ? `, ${count(table.running)} running` : ''
  show('summary', `${counted(table.all, 'run')}${running}`)
  keepFocus(() => show('table', body(table)))
  showChoice()
  show('pager', pager('runs', table, 'run', parameters))
}

repeat(refresh, () => PAUSE)
