// What a search recommends: the settings of its best trial or the default, and the seeds that this rests on.
import { h } from './elements.js'
import { address } from './page.js'
import { chance, chip, table } from './parts.js'
import { count, formatted, known, small } from './format.js'

export const verdict = (recommended) => (recommended === 'winner' ? chip('good', 'better settings') : chip('warn', 'keep the default'))

/** The recommendation: the verdict in words, the settings, and the metric of each seed. */
export function recommendation(search) {
  const { comparison: found } = search
  if (!found) return [h('h2', {}, 'Recommendation'), h('p', { class: 'muted' }, 'There is none yet. When the minutes are spent, the best trial and the default are trained again with further seeds and compared.')]
  const test = [found.p === null ? null : `p ${chance(found.p)}`, found.rows ? `${count(found.rows)} dev rows` : null].filter(Boolean).join(', ')
  return [
    h('h2', {}, 'Recommendation ', verdict(found.recommended)),
    h('p', {}, `${found.reason[0].toUpperCase()}${found.reason.slice(1)}.`, test ? h('span', { class: 'muted' }, ` (${test})`) : null),
    h('div', { class: 'recommended' }, settings(search), found.winner.runs.length ? seeds(search) : null),
  ]
}

function settings({ space, default: initial, trials, best, comparison }) {
  const { values } = trials.find(({ number }) => number === best)
  const chosen = comparison.recommended === 'winner'
  const cell = (value, bold) => h(bold ? 'b' : 'span', {}, setting(value))
  return table('', [['Field', 'nowrap'], ['Default', 'number'], [`Trial ${best}`, 'number']],
    Object.keys(space).map((key) => [key, cell(initial[key], !chosen), cell(values[key], chosen)]))
}

export const setting = (value) => (typeof value === 'number' ? small(value) : formatted(value, 'value'))

function seeds({ best, metric, comparison: { seeds, winner, default: initial } }) {
  const of = ({ runs, values }, at) => (runs[at] ? h('a', { href: address('run', { run: runs[at] }) }, known(values[at])) : known(values[at]))
  return table('', [['Seed', ''], [`Default, ${metric}`, 'number'], [`Trial ${best}, ${metric}`, 'number']],
    [...seeds.map((seed, at) => [String(seed), of(initial, at), of(winner, at)]), ['mean', h('b', {}, known(initial.mean)), h('b', {}, known(winner.mean))]])
}
