// Opens traces in catapult's importer, the code behind chrome://tracing, and checks that it takes
// everything: no warning, every arrow bound to the slices that it is meant for, every process named.
//
//   node catapult_check.mjs FOLDER_FOR_PACKAGES TRACE.json[.gz]...
//   node catapult_check.mjs --samples WRITE_SAMPLES PIPEWRIGHT SOURCES FOLDER FOLDER_FOR_PACKAGES
//
// The second form first makes traces in FOLDER: those of WRITE_SAMPLES, which prints their paths, and one of each other
// kind that the command PIPEWRIGHT writes, out of what lies in SOURCES.
// The importer comes from two npm packages of fixed versions, fetched once into the folder and checked
// against the hashes below. Exit status 0: all well; 1: a trace is not; 77: no importer could be had.

import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { gunzipSync } from 'node:zlib';

const packages = [
  {
    name: 'lighthouse',
    version: '1.6.3',
    sha256: '07dc44cb6f7a9cec53b3e85a3a1146b7afbaf7c78d9167c335488cd3f2f11a74',
  },
  {
    name: 'gl-matrix',
    version: '2.3.2',
    sha256: 'e3b91ab252647b832a720748425d52a147f100d2676c5b671277caa39a97427f',
  },
];

const costs = '--cost F=3ms,I=2ms,W=1ms,comm=100us';
const plan = 'examples/plan.json --data README.md';
/// Words of the command, and the status with which it ends.
const kinds = {
  'pairs.json': [`simulate -s dualpipev -p 4 -m 8 ${costs}`, 0],
  'both-ways.json': [`simulate -s chimera -p 4 -m 8 ${costs}`, 0],
  'waves.json': [`simulate -s hanayo -p 4 -m 8 ${costs}`, 0],
  'versions.json': [`simulate -s pipedream -p 4 -m 8 ${costs}`, 0],
  'searched.json': [`simulate -s auto -p 4 -m 8 ${costs}`, 0],
  'replicas.json': [`simulate -s 1f1b -p 2 -m 4 --dp 2 ${costs},reduce=2ms`, 0],
  'plan.json.gz': ['simulate examples/plan.json', 0],
  'calls.json': ['simulate docs/hangs/megatron-1810.csv', 1],
  'trained.json.gz': [`run ${plan}`, 0],
  'virtual.json.gz': [`run ${plan} --clock virtual --steps 2`, 0],
  'hung.json': ['run -s paddle-vpp --jobs fused -p 4 -m 8 -v 2', 4],
  'run-replicas.json': ['run -s 1f1b -p 2 -m 4 --dp 2 --cost F=3ms,B=5ms', 0],
  'parts.json': ['run divided.json --data README.md', 0], // of dividedPlan()
  'graph.json': ['spmd run long.json --schedule-mode 1F1B --accumulate-steps 8', 0], // of longGraph()
};

/// The example's plan on four devices, two to each layer: actions have parts, and sums between them.
function dividedPlan(sources) {
  const plan = JSON.parse(readFileSync(join(sources, 'examples', 'plan.json'), 'utf8'));
  plan.mesh = { shape: [2, 2], dim_names: ['pp', 'tp'], devices: [0, 1, 2, 3] };
  plan.cluster.devices_per_node = 4;
  delete plan.cluster_fingerprint;
  return JSON.stringify(plan);
}

/// The example with texts of 64 words in place of 4: a slice shorter than 1 us has no arrow.
function longGraph(sources) {
  const graph = JSON.parse(readFileSync(join(sources, 'docs', 'examples', 'hybrid-words.json'), 'utf8'));
  for (const tensor of Object.values(graph.tensors)) tensor.shape = tensor.shape.map((size) => (size === 4 ? 64 : size));
  return JSON.stringify(graph);
}

function tracesOfCommand(command, sources, folder) {
  const made = { 'divided.json': dividedPlan, 'long.json': longGraph };
  for (const [name, textOf] of Object.entries(made)) writeFileSync(resolve(folder, name), textOf(sources));
  return Object.entries(kinds).map(([name, [text, status]]) => {
    const path = resolve(folder, name);
    const words = text.split(' ').map((word) => (word in made ? resolve(folder, word) : word));
    const done = spawnSync(resolve(command), [...words, '--trace', path], { cwd: sources, encoding: 'utf8' });
    if (done.status !== status) throw new Error(`pipewright ${text} ended with ${done.status}: ${done.stderr}`);
    return path;
  });
}

function skip(reason) {
  console.log(`skipped: ${reason}`);
  process.exit(77);
}

function fetchPackage(folder, { name, version, sha256 }) {
  const home = join(folder, 'node_modules', name);
  if (existsSync(join(home, 'package.json'))) return;
  const tarball = join(folder, `${name}-${version}.tgz`);
  if (!existsSync(tarball)) {
    try {
      execFileSync('npm', ['pack', '--silent', `${name}@${version}`], {
        cwd: folder,
        stdio: ['ignore', 'ignore', 'ignore'],
        timeout: 60_000,
      });
    } catch {
      skip(`npm cannot fetch ${name}@${version} (no npm, or no registry in reach)`);
    }
  }
  const found = createHash('sha256').update(readFileSync(tarball)).digest('hex');
  if (found !== sha256) {
    rmSync(tarball);
    throw new Error(`${name}@${version} has the hash ${found}, expected ${sha256}`);
  }
  // Under another name first, so that a run that is cut off leaves no half package.
  const half = `${home}.${process.pid}`;
  mkdirSync(half, { recursive: true });
  execFileSync('tar', ['-xzf', tarball, '-C', half, '--strip-components=1']);
  renameSync(half, home);
}

/// catapult's code was made for a browser page: what it expects there is put in place before it loads.
function loadCatapult(folder) {
  const require = createRequire(join(folder, 'here.cjs'));
  globalThis.window = globalThis;
  Object.assign(globalThis, require('gl-matrix'));
  globalThis.JSZip = {};
  globalThis.mannwhitneyu = {};
  const lighthouse = join(folder, 'node_modules', 'lighthouse', 'lighthouse-core');
  const nothing = join(lighthouse, 'lib', 'empty-stub.js');
  globalThis.HTMLImportsLoader = { hrefToAbsolutePath: () => nothing };
  require(join(lighthouse, 'third_party', 'traceviewer-js'));
  return globalThis.tr;
}

function importTrace(tr, trace) {
  const options = new tr.importer.ImportOptions();
  options.showImportWarnings = false;
  options.pruneEmptyContainers = false;
  options.shiftWorldToZero = false;
  const model = new tr.Model();
  new tr.importer.Import(model, options).importTraces([trace]);
  return model;
}

/// "SEND_F m3 s1" leads from F m3 of stage 1 to stage 2, "SEND_B m3 s1" to stage 0.
function isEndOf(slice, arrow, consumer) {
  const [, kind, microBatch, stage] = /^SEND_([FB]) m(\d+) s(\d+)/.exec(arrow);
  const away = consumer ? (kind === 'F' ? 1 : -1) : 0;
  const kinds = kind === 'F' ? 'F' : 'IB';
  const action = slice.args.action ?? '';
  const at = `${Number(stage) + away}`;
  return [...kinds, ...[`SEND_${kind}`, `RECV_${kind}`]].some((k) =>
    new RegExp(`(^|\\(|;)${at}${k}${microBatch}($|@|;|\\.|\\))`).test(action),
  );
}

function problemsOf(tr, trace) {
  const problems = [];
  const model = importTrace(tr, trace);
  for (const warning of model.importWarnings) problems.push(`warning ${JSON.stringify(warning)}`);

  const events = trace.traceEvents;
  const tails = events.filter((event) => event.ph === 's');
  const sends = events.filter((event) => event.ph === 'X' && event.name.startsWith('SEND_'));
  if (tails.length === 0 && sends.length > 0) problems.push('no arrow, and there are messages');
  if (model.flowEvents.length !== tails.length) {
    problems.push(`${model.flowEvents.length} arrows bound, ${tails.length} written`);
  }
  for (const flow of model.flowEvents) {
    if (!flow.startSlice || !flow.endSlice) {
      problems.push(`${flow.title} is bound to no slice`);
    } else if (!isEndOf(flow.startSlice, flow.title, false) || !isEndOf(flow.endSlice, flow.title, true)) {
      problems.push(`${flow.title} leads from ${flow.startSlice.title} to ${flow.endSlice.title}`);
    }
  }

  const processes = Object.values(model.processes);
  const pids = new Set(events.map((event) => event.pid));
  if (processes.length !== pids.size) problems.push('processes are missing');
  let slices = 0;
  for (const process of processes) {
    const isHost = process.name === 'host'; // what the command did around the steps
    if (!isHost && process.name !== `rank ${process.sortIndex}`) problems.push(`process name ${process.name}`);
    if (!isHost && Object.keys(process.counters).length === 0) problems.push(`${process.name} has no counter`);
    for (const thread of Object.values(process.threads)) {
      slices += thread.sliceGroup.length;
      if (!thread.name) problems.push(`${process.name} has a thread without a name`);
    }
  }
  const written = events.filter((event) => event.ph === 'X').length;
  if (slices !== written) problems.push(`${slices} slices imported, ${written} written`);
  return { problems, slices, arrows: model.flowEvents.length };
}

let [folderArgument, ...traces] = process.argv.slice(2);
if (folderArgument === '--samples' && traces.length === 5) {
  const [writer, command, sources, samples, packagesFolder] = traces;
  folderArgument = packagesFolder;
  traces = execFileSync(writer, [samples], { encoding: 'utf8' }).trim().split('\n');
  traces.push(...tracesOfCommand(command, sources, samples));
}
if (!folderArgument || traces.length === 0) {
  console.error('usage: node catapult_check.mjs FOLDER_FOR_PACKAGES TRACE.json[.gz]...');
  process.exit(2);
}
const folder = resolve(folderArgument);
mkdirSync(join(folder, 'node_modules'), { recursive: true });
for (const wanted of packages) fetchPackage(folder, wanted);
const tr = loadCatapult(folder);

let failed = false;
for (const path of traces) {
  const bytes = readFileSync(path);
  const text = bytes[0] === 0x1f ? gunzipSync(bytes) : bytes;
  const { problems, slices, arrows } = problemsOf(tr, JSON.parse(text.toString('utf8')));
  console.log(`${path}: ${slices} slices, ${arrows} arrows, ${problems.length} problems`);
  for (const problem of problems.slice(0, 10)) console.log(`  ${problem}`);
  failed ||= problems.length > 0;
}
process.exit(failed ? 1 : 0);
