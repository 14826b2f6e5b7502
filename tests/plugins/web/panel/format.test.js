import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bytes, counted, elapsed, number, percent, runName, seconds, signed, small } from './format.js'

function check(name, write, expected) {
  for (const [value, text] of expected) test(`${name}(${JSON.stringify(value)})`, () => assert.equal(write(value), text))
}

check('seconds', seconds, [
  [0.4, '< 1 s'], [1, '1 s'], [9.94, '9.9 s'], [9.96, '10 s'], [59.4, '59 s'], [59.7, '1 min 0 s'], [60, '1 min 0 s'],
  [119.7, '2 min 0 s'], [3599.4, '59 min 59 s'], [3599.7, '1 h 0 min'], [7199, '2 h 0 min'], [172799, '2 d 0 h'],
  [172800, '2 d 0 h'], [176399, '2 d 1 h'],
])
check('counted', (value) => counted(value, 'run'), [[0, '0 runs'], [1, '1 run'], [2, '2 runs'], [1234, '1,234 runs']])
check('bytes', bytes, [[0, '0 B'], [999, '999 B'], [1000, '1 kB'], [1234567, '1.23 MB'], [-2e9, '-2 GB']])
check('number', number, [[0, '0'], [12.3456, '12.35'], [1234.5, '1,235']])
check('percent', percent, [[0, '0.0 %'], [0.12345, '12.3 %'], [1, '100.0 %']])
check('signed', signed, [[0.5, '+0.5000'], [-0.12345, '−0.1235'], [0, '+0.0000']])
check('small', small, [[0, '0'], [3, '3'], [2e-5, '2.0e-5'], [0.0123456, '0.01235']])
check('elapsed', (value) => elapsed(value, 1), [[0, '0:00'], [59.6, '1:00'], [3599.6, '1:00:00'], [3723, '1:02:03'], [-5, '−0:05']])
check('elapsed by 10 ms', (value) => elapsed(value, 0.01), [[1.234, '0:01.23'], [59.999, '1:00.00']])
check('runName', (id) => runName('folder', 'finetune', id), [
  ['manual__2026-11-23T10:00:00+00:00', 'manual 2026-11-23 10:00:00'],
  ['scheduled__2026-11-23T10:00:00+00:00[2]', 'scheduled 2026-11-23 10:00:00 [2]'],
  ['asset_triggered__2026-11-23T10:00:00.123+00:00', 'asset triggered 2026-11-23 10:00:00'],
  ['nightly', 'nightly'],
])
test('runName without a Dag', () => assert.equal(runName('first', '', ''), 'first'))
