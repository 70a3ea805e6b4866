// Opens traces in catapult's importer, the code behind chrome://tracing, and checks that it takes
// everything: no warning, every arrow bound to the slices that it is meant for, every process named.
//
//   node catapult_check.mjs FOLDER_FOR_PACKAGES TRACE.json[.gz]...
//   node catapult_check.mjs --samples WRITE_SAMPLES FOLDER FOLDER_FOR_PACKAGES
//
// The second form runs WRITE_SAMPLES first, which writes traces into FOLDER and prints their paths.
// The importer comes from two npm packages of fixed versions, fetched once into the folder and checked
// against the hashes below. Exit status 0: all well; 1: a trace is not; 77: no importer could be had.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
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
    new RegExp(`(^|\\(|;)${at}${k}${microBatch}($|@|;|\\))`).test(action),
  );
}

function problemsOf(tr, trace) {
  const problems = [];
  const model = importTrace(tr, trace);
  for (const warning of model.importWarnings) problems.push(`warning ${JSON.stringify(warning)}`);

  const events = trace.traceEvents;
  const tails = events.filter((event) => event.ph === 's');
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
    if (process.name !== `rank ${process.sortIndex}`) problems.push(`process name ${process.name}`);
    if (Object.keys(process.counters).length === 0) problems.push(`${process.name} has no counter`);
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
if (folderArgument === '--samples' && traces.length === 3) {
  const [writer, samples, packagesFolder] = traces;
  folderArgument = packagesFolder;
  traces = execFileSync(writer, [samples], { encoding: 'utf8' }).trim().split('\n');
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
