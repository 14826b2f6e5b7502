// The curves of a training. Lines are fetched as they are written, each once.
import { h } from './elements.js'
import { fetchJson } from './page.js'
import { chart } from './chart.js'
import { bytes, number, percent, score, small } from './format.js'

const received = (line) => Object.entries(line).filter(([name]) => name.startsWith('bytes_')).reduce((sum, [, value]) => sum + value, 0)
const NOT_METRICS = new Set(['step', 'epoch', 'time', 'dev_loss', 'shares', 'predicted'])

/** The lines that a training has written. */
export class Lines {
  constructor() {
    this.forget()
  }

  forget() {
    this.all = []
    this.source = ''
    this.offset = 0
  }

  /** Fetch what is new. */
  async fetch(which) {
    let more = true
    while (more) {
      const answer = await fetchJson('curves', { ...which, source: this.source, offset: this.offset })
      const before = this.all.at(-1)
      const repeated = before && answer.lines.length && answer.lines[0].step < before.step
      if (repeated && !answer.again) {
        // The training was resumed, and the file has grown beyond what was read before: all of it is read again.
        this.forget()
        continue
      }
      if (answer.again) this.forget()
      this.source = answer.source
      this.offset = answer.offset
      this.all.push(...answer.lines.filter((line) => Number.isFinite(line.step)))
      more = answer.more
    }
  }

  get training() {
    return this.all.filter((line) => 'loss' in line)
  }

  get dev() {
    return this.all.filter((line) => !('loss' in line))
  }

  /** The metric among those of the dev lines that is shown: the wanted one if they have it. */
  measured(metric) {
    const first = this.dev[0]
    return first ? [metric, ...Object.keys(first).filter((key) => !NOT_METRICS.has(key))].find((key) => key in first) : null
  }
}

/** Charts that are made when there is something to draw. */
export class Charts {
  constructor() {
    this.element = h('div', { class: 'charts' })
    this.made = {}
  }

  update(title, options, lines) {
    const key = title.startsWith('Dev ') && options.format === score ? 'metric' : title
    if (!this.made[key] || this.made[key].title !== title) {
      const made = { title, ...chart(title, options) }
      if (this.made[key]) this.made[key].figure.replaceWith(made.figure)
      else this.element.append(made.figure)
      this.made[key] = made
    }
    this.made[key].update(lines.filter((line) => line.points.length))
  }
}

/** The curves of the run of a page. */
export class Curves {
  constructor() {
    this.lines = new Lines()
    this.charts = new Charts()
    this.element = this.charts.element
  }

  /** Fetch what is new and draw it. Return whether there are any curves. */
  async fetch(which, metric) {
    await this.lines.fetch(which)
    this.draw(metric)
    return this.lines.all.length > 0
  }

  draw(metric) {
    const { training, dev } = this.lines
    this.charts.update('Loss', { format: small }, [
      { name: 'training', noisy: true, points: of(training, named('loss')) },
      { name: 'dev', dots: true, points: of(dev.filter((line) => 'dev_loss' in line), named('dev_loss')) },
    ])
    const measured = this.lines.measured(metric)
    this.charts.update(measured ? `Dev ${measured}` : 'Dev metric', { format: score }, measured ? [{ name: measured, dots: true, points: of(dev, named(measured)) }] : [])
    this.charts.update('Learning rate', { format: small }, [{ name: 'learning rate', points: of(training, named('learning_rate')) }])
    this.charts.update('Gradient norm', { format: small }, [{ name: 'norm', noisy: true, points: of(training, named('grad_norm')) }])
    this.charts.update('Rows per second', { format: number }, [{ name: 'rows/s', noisy: true, points: of(training, named('rows_per_second')) }])
    this.charts.update('Memory, largest rank', { format: bytes }, [{ name: 'memory', points: of(training, named('memory')) }])
    this.charts.update('Padding', { format: percent }, [{ name: 'padding', noisy: true, points: of(training, named('padding_share')) }])
    const wire = of(training, received)
    this.charts.update('Received per step', { format: bytes }, wire.some(([, y]) => y) ? [{ name: 'bytes', noisy: true, points: wire }] : [])
    const labels = [...new Set(dev.flatMap((line) => Object.keys(line.shares || {})))].slice(0, 8)
    this.charts.update('Dev predictions by class', { format: percent, domain: { y: [0, 1] } },
      labels.map((label) => ({ name: label, dots: true, points: of(dev.filter((line) => line.shares), (line) => line.shares[label] ?? 0) })))
    const scored = dev.filter((line) => line.predicted)
    this.charts.update('Dev predictions', { format: small }, ['mean', 'std'].map((name) => ({ name, dots: true, points: of(scored, (line) => line.predicted[name]) })))
  }

  /** The step that the training is at, those that it plans, and the seconds that are left, null if not known. */
  progress(planned) {
    const step = this.lines.all.at(-1)?.step ?? 0
    const timed = this.lines.all.filter((line) => Number.isFinite(line.time))
    const [first, last] = [timed[0], timed.at(-1)]
    const pace = timed.length && last.step > first.step ? (last.time - first.time) / (last.step - first.step) : null
    return { step, planned: planned || null, left: pace && planned ? Math.max(0, (planned - step) * pace) : null }
  }
}

/** The points of a curve: a value of each line by its step. */
export const of = (lines, value) => lines.map((line) => [line.step, finite(value(line))])
export const named = (key) => (line) => line[key]
const finite = (value) => (typeof value === 'number' && Number.isFinite(value) ? value : null)
