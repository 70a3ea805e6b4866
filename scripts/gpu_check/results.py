"""What was found, on disk at every moment: an archive that always opens, and a summary beside it.

The archive holds summary.txt, results.json (schema pipewright.gpu-check/1) and raw/STEP/: what a step's
commands printed and wrote. A later command takes it up again. It is written beside its place and moved there, so
whoever is killed leaves the one before.
"""
import json
import os
import tarfile
import time

SCHEMA = 'pipewright.gpu-check/1'
NAME = 'gpu-check.tar.gz'
MOST_FILE_BYTES = 4 << 20
MOST_RAW_BYTES = 14 << 20  # with the rest below the 16 MiB that a file may have on its way back

DONE = ('passed', 'failed', 'out of time', 'not taken')


class Results:
    """`folder` is for working files and is nobody else's; `out` gets the archive and the summary."""

    def __init__(self, folder, out, facts):
        self.folder, self.out = folder, out
        self.data = {'schema': SCHEMA, **facts, 'commands': [], 'steps': []}
        self.left_out = []

    def take_up(self, archive):
        """The results of earlier commands. ValueError: it is no such archive, or of another kind of run."""
        mine = self.data
        try:
            with tarfile.open(archive) as opened:
                names = opened.getnames()
                if any(os.path.isabs(name) or '..' in name.split('/') for name in names):
                    raise ValueError(f'{archive}: its names lead out of it')
                opened.extractall(self.folder)
            with open(os.path.join(self.folder, 'results.json'), encoding='utf-8') as file:
                found = json.load(file)
        except (OSError, tarfile.TarError, json.JSONDecodeError, EOFError) as error:
            raise ValueError(f'{archive}: {error}') from error
        if found.get('schema') != SCHEMA or found['rehearsal'] != mine['rehearsal']:
            raise ValueError(f'{archive}: not of such a run; name another --out, or take --fresh')
        self.data = {**found, **mine, 'commands': found['commands'], 'steps': found['steps']}

    # --- Steps ---

    def step(self, name):
        """Its record, or None."""
        return next((one for one in self.data['steps'] if one['name'] == name), None)

    def is_done(self, name):
        record = self.step(name)
        return record is not None and record['status'] in DONE

    def is_cut_off(self, name):
        """Whether the command that ran it was killed in it."""
        record = self.step(name)
        return record is not None and record['status'] == 'begun'

    def begin(self, step):
        before = self.step(step.name)
        record = {'name': step.name, 'what': step.what, 'limit_s': step.limit, 'status': 'begun', 'why': '',
                  'tries': before['tries'] + 1 if before else 1, 'seconds': 0, 'figures': []}
        if before:
            self.data['steps'].remove(before)
        self.data['steps'].append(record)
        return record

    def leave(self, step, why):
        """Not taken, and not begun: a later command may still take it."""
        record = self.begin(step)
        record.update(status='left', why=why, tries=record['tries'] - 1)

    def raw(self, step):
        """The folder of the step's files."""
        folder = os.path.join(self.folder, 'raw', step)
        os.makedirs(folder, exist_ok=True)
        return folder

    # --- Time ---

    def begin_command(self):
        """Its number, from 1."""
        began = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())
        self.data['commands'].append({'began': began, 'seconds': 0, 'set_up': 'begun'})
        return len(self.data['commands'])

    def used_s(self):
        """By all commands so far."""
        return sum(command['seconds'] for command in self.data['commands'])

    # --- On disk ---

    def save(self, seconds):
        """`seconds`: of this command, so far."""
        self.data['commands'][-1]['seconds'] = round(seconds, 3)
        self._write('results.json', json.dumps(self.data, indent=1) + '\n')
        archive = os.path.join(self.out, NAME)
        self.left_out = []
        with tarfile.open(archive + '.new', 'w:gz', compresslevel=1) as made:
            self._add_raw(made)
            self._write('summary.txt', summary(self.data, self.left_out))
            for name in ('summary.txt', 'results.json'):
                made.add(os.path.join(self.folder, name), name)
        os.replace(archive + '.new', archive)
        text = os.path.join(self.out, 'summary.txt')
        with open(text + '.new', 'w', encoding='utf-8') as file:
            file.write(summary(self.data, self.left_out))
        os.replace(text + '.new', text)

    def _add_raw(self, made):
        room = MOST_RAW_BYTES
        steps = [record['name'] for record in self.data['steps']]
        for step in [f'set-up-{k + 1}' for k in range(len(self.data['commands']))] + steps:
            folder = os.path.join(self.folder, 'raw', step)
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
                size = os.path.getsize(os.path.join(folder, name))
                if size > min(MOST_FILE_BYTES, room):
                    self.left_out.append(f'raw/{step}/{name}: {size} bytes')
                    continue
                room -= size
                made.add(os.path.join(folder, name), f'raw/{step}/{name}')

    def _write(self, name, text):
        with open(os.path.join(self.folder, name), 'w', encoding='utf-8') as file:
            file.write(text)


# --- Figures ---

def figure(what, found, relation='', wanted=None):
    """What was measured beside what was asked for; `relation` is <=, >= or empty, where nothing was asked."""
    verdict = 'not taken' if found is None else 'measured'
    if found is not None and relation:
        verdict = 'yes' if (found <= wanted if relation == '<=' else found >= wanted) else 'no'
    return {'what': what, 'found': found, 'relation': relation, 'wanted': wanted, 'verdict': verdict}


def _number(value):
    return '-' if value is None else f'{value:.4g}' if isinstance(value, float) else str(value)


def summary(data, left_out=()):
    lines = []
    if data['rehearsal']:
        lines += ['REHEARSAL without a GPU, small models: no figure here is a GPU\'s.', '']
    lines += [f'{data["device"]}, Pipewright {data["commit"]}, {len(data["commands"])} command(s), '
              f'{sum(c["seconds"] for c in data["commands"]):.0f} s', '']
    for record in data['steps']:
        for one in record['figures']:
            asked = f'{one["relation"]} {_number(one["wanted"])}' if one['relation'] else ''
            lines.append(f'{one["what"]:<66} {_number(one["found"]):>10}  {asked:<10} {one["verdict"]}')
    lines += ['', f'{"step":<20} {"outcome":<12} {"s":>6} {"limit":>6}']
    for record in data['steps']:
        status = {'begun': 'cut off', 'left': 'not taken'}.get(record['status'], record['status'])
        lines.append(f'{record["name"]:<20} {status:<12} {record["seconds"]:6.1f} {record["limit_s"]:6.0f}  '
                     f'{record["why"]}'.rstrip())
    lines += [f'set-up of command {k}: {one["set_up"]}' for k, one in enumerate(data['commands'], 1)
              if one['set_up'] != 'passed']
    lines += [f'left out of the archive: {one}' for one in left_out]
    return '\n'.join(lines) + '\n'
