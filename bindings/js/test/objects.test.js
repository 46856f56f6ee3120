'use strict';
// Objects: fields and methods of types from all languages, and types that are defined in JavaScript.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { anyfn, samples, run } = require('./support.js');

const sample = samples();

test('fields and methods of a type that Rust defines', () => {
  const point = sample('make_point')(1, 2);
  assert.equal(point.typeKey, 'testing.Point');
  assert.deepEqual([point.x, point.y], [1, 2]);
  assert.ok(point instanceof anyfn.classOf('testing.Point') && point instanceof anyfn.ObjectRef);
  assert.equal(String(point), 'testing.Point(x=1, y=2)');
  assert.throws(() => point.constructor.prototype.x, Error);
  assert.throws(() => anyfn.classOf('no.Such'), { name: 'TypeError', message: /no\.Such/ });
});

class Expr extends anyfn.ObjectRef {
  static fields = {};
  static structural = 'tree';
}
anyfn.registerObject('js.Expr', Expr);

class Int extends Expr {
  static fields = { value: 'int' };
}
anyfn.registerObject('js.Int', Int);

class Add extends Expr {
  static fields = { left: 'js.Expr', right: { type: 'js.Expr', doc: 'Right operand.' }, note: { type: 'Any', default: 'none' } };

  get total() {
    return this.left.value + this.right.value;
  }

  sum(more) {
    return this.total + more;
  }

  static of(a, b) {
    return new Add({ left: new Int({ value: a }), right: new Int({ value: b }) });
  }
}
anyfn.registerObject('js.Add', Add);

test('a type that JavaScript defines', () => {
  const add = Add.of(1, 2);
  assert.equal(String(add), 'js.Add(left=js.Int(value=1), right=js.Int(value=2), note="none")');
  assert.ok(add instanceof Add && add instanceof Expr);
  assert.equal(add.sum(10), 13);
  add.note = 'changed';
  assert.equal(sample('get_field')(add, 'note'), 'changed');
  assert.equal(sample('call_method')(add, 'sum', 100), 103);
  assert.equal(sample('echo')(add), add);
  assert.ok(anyfn.structuralEqual(Add.of(1, 2), Add.of(1, 2)));
  assert.equal(anyfn.structuralHash(Add.of(1, 2)), anyfn.structuralHash(Add.of(1, 2)));
  const loaded = anyfn.loadJson(anyfn.saveJson(add));
  assert.ok(loaded instanceof Add && loaded.left instanceof Int);
  assert.deepEqual([loaded.total, loaded.note], [3, 'changed']);
});

test('mistakes are named', () => {
  assert.throws(() => new Add({ left: 5 }), { name: 'TypeError' });
  assert.throws(() => new Add({ left: new Int({ value: 1 }) }), { name: 'TypeError', message: /right/ });
  assert.throws(() => new Int({ value: 1, other: 2 }), { name: 'TypeError', message: /other/ });
  assert.throws(() => new Int(5), { name: 'TypeError', message: /object with the fields/ });
  assert.throws(() => (new Int({ value: 1 }).value = 'x'), { name: 'TypeError' });
  assert.throws(() => new (class Unregistered extends anyfn.ObjectRef {})(), { message: /registerObject/ });
  assert.throws(() => anyfn.registerObject('js.Bad', class {}), TypeError);
  assert.throws(
    () => anyfn.defineType('js.Reserved', { fields: { dispose: 'int' } }),
    { name: 'TypeError', message: /reserved/ },
  );
  assert.throws(() => anyfn.defineType('js.Odd', { fields: { x: 'no.Type' } }), Error);
  assert.throws(() => anyfn.defineType('js.Int', { fields: { value: 'str' }, parent: Expr }), Error);
});

test('defineType describes a type without a class statement', () => {
  const Range = anyfn.defineType('js.Range', {
    fields: { start: 'int', stop: { type: 'int', default: 2, readOnly: true } },
    methods: {
      size() {
        return this.stop - this.start;
      },
    },
  });
  const range = new Range({ start: 1 });
  assert.equal(range.size(), 1);
  assert.equal(Range.name, 'Range');
  assert.throws(() => (range.stop = 5), { name: 'TypeError', message: /read-only/ });
  const List = anyfn.defineType('js.Names', { fields: { names: { type: 'ffi.List', defaultFactory: () => new anyfn.ListRef() } } });
  const [a, b] = [new List({}), new List({})];
  a.names.push('x');
  assert.deepEqual([a.names.size, b.names.size], [1, 0]);
});

test('fields with 64-bit integers', () => {
  const Big = anyfn.defineType('js.Big', { fields: { n: 'int' } });
  const big = new Big({ n: 2n ** 60n });
  assert.throws(() => big.n, { name: 'RangeError', message: /1152921504606846976 is not exact.*getField/ });
  assert.equal(anyfn.getField(big, 'n', { bigint: true }), 2n ** 60n);
  assert.throws(() => anyfn.getField(big, 'm'), { name: 'TypeError', message: /'m'/ });
});

test('a disposed object says so', () => {
  const object = new Int({ value: 1 });
  object.dispose();
  assert.throws(() => object.value, { message: /disposed of/ });
  assert.match(require('node:util').inspect(object), /disposed/);
});

test('objects made in one process are read in another', () => {
  const json = anyfn.saveJson(Add.of(3, 4));
  const { out, err } = run(`
    const Expr = anyfn.defineType('js.Expr', { structural: 'tree' });
    anyfn.defineType('js.Int', { fields: { value: 'int' }, parent: Expr });
    anyfn.defineType('js.Add', { fields: { left: 'js.Expr', right: 'js.Expr', note: 'Any' }, parent: Expr });
    console.log(String(anyfn.loadJson(${JSON.stringify(json)})));
  `);
  assert.equal(out.trim(), 'js.Add(left=js.Int(value=3), right=js.Int(value=4), note="none")', err);
});
