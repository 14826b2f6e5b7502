// Texts whose words are tinted by what they contribute to the prediction.
import { h } from './elements.js'
import { signed } from './format.js'

const LEAST = 0.1 // if no word contributes more, even the largest contribution is faint

const strongest = ({ contributions }) => Object.values(contributions).reduce((one, other) => (Math.abs(other) > Math.abs(one) ? other : one), 0)

function word(part, largest) {
  const value = strongest(part)
  const numbers = Object.entries(part.contributions).map(([label, each]) => `${label} ${signed(each, 3)}`.trim())
  const mark = h('mark', { class: value < 0 ? 'against' : 'for', title: numbers.join(', ') || null }, part.word)
  mark.style.setProperty('--share', `${Math.round((100 * Math.abs(value)) / largest)}%`)
  return mark
}

/** The contents of a paragraph for each text of a row: its words, with their contributions as tooltips, and the rest. */
export function explained({ texts, explanation }) {
  const largest = Math.max(LEAST, ...explanation.map((part) => Math.abs(strongest(part))))
  return texts.map((text, number) => {
    const pieces = []
    let at = 0
    for (const part of explanation.filter((one) => one.text === number + 1)) {
      const start = text.indexOf(part.word, at)
      if (start < 0) break // the rest of a long text is not shown
      pieces.push(text.slice(at, start), word(part, largest))
      at = start + part.word.length
    }
    return [...pieces, text.slice(at)]
  })
}

export const legend = () => h('p', { class: 'words' }, 'Words of the worst mistakes: ',
  h('mark', { class: 'for' }, 'for'), ' or ', h('mark', { class: 'against' }, 'against'),
  ' the prediction. The tooltip is the contribution: by how much the probability (or the score) falls without the word.')
