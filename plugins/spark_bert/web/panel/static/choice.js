// The runs that the reader chooses to compare. All pages of the table remember them while the tab is open.
import { h, show } from './elements.js'
import { address } from './page.js'

const FEWEST = 2
const MOST = 6
const PLACE = 'spark-bert.chosen-runs'
const chosen = new Set(JSON.parse(sessionStorage.getItem(PLACE) || '[]'))

/** A box to choose a run with. */
export function choiceBox(run, name) {
  return h('input', { type: 'checkbox', name: 'chosen', value: run, checked: chosen.has(run), 'aria-label': `Compare ${name}`, onchange: choose })
}

function choose({ target }) {
  if (target.checked) chosen.add(target.value)
  else chosen.delete(target.value)
  remember()
}

function clear() {
  chosen.clear()
  for (const box of boxes()) box.checked = false
  remember()
}

function remember() {
  sessionStorage.setItem(PLACE, JSON.stringify([...chosen]))
  showChoice()
}

const boxes = () => document.querySelectorAll('input[name=chosen]')

/** Show how many runs are chosen, and lead to their comparison. */
export function showChoice() {
  const full = chosen.size >= MOST
  for (const box of boxes()) box.disabled = full && !box.checked
  const bar = show('choice',
    chosen.size >= FEWEST
      ? h('a', { class: 'button', href: address('compare', { run: [...chosen] }) }, `Compare ${chosen.size} runs`)
      : h('span', {}, 'Choose another run to compare this one with.'),
    full ? h('span', {}, 'More cannot be compared at once.') : null,
    h('button', { type: 'button', onclick: clear }, 'Clear'))
  bar.hidden = !chosen.size
}

/** Draw something again, and leave the focus on the box that has it. */
export function keepFocus(draw) {
  const { name, value } = document.activeElement || {}
  draw()
  if (name === 'chosen') [...boxes()].find((box) => box.value === value)?.focus()
}
