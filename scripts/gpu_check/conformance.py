"""GoogleTest programs in as few processes as can be: a process with CUDA takes a second to start. What a crash kept
from running runs in a further one; and what failed is tried alone, for after one bad access all that follows fails."""
import os
import re

from gpu_check import machine
from gpu_check.machine import Failed, NotTaken

_LINE = re.compile(r'\[ *(RUN|OK|FAILED|SKIPPED) *\] ([^\s,]+)(.*)')
_RAN = re.compile(r'\[=+\] Running (\d+) test')


def outcomes(lines):
    """By name, in the order of running: ok, failed, skipped, or crashed where no end was told; and how many were
    asked for, 0 where the program told none."""
    found, asked = {}, 0
    for line in lines:
        ran, told = _RAN.match(line), _LINE.match(line)
        if ran:
            asked = int(ran.group(1))
        if told and told.group(1) == 'RUN':
            found[told.group(2)] = 'crashed'
        elif told and told.group(3).endswith('ms)'):
            found[told.group(2)] = told.group(1).lower()
    return found, asked


def _run(context, program, chosen):
    """Appends to program.txt. context.told is the result also where time ends it."""
    log = context.path(f'{program}.part.txt')
    command = [context.program(program), '--gtest_color=no', f'--gtest_filter={chosen}']
    context.told = ({}, 0)
    try:
        context.runner.status(command, context.log, log)
    finally:
        with open(log, encoding='utf-8', errors='replace') as file:
            text = file.read()
        with open(context.path(f'{program}.txt'), 'a', encoding='utf-8') as file:
            file.write(text)
        os.remove(log)
        context.told = outcomes(text.splitlines())
    return context.told


def _without(chosen, names):
    """The filter, less some tests."""
    return f'{chosen}{":" if "-" in chosen else "-"}{":".join(names)}'


def tests(context, program, chosen, title):
    """A filter that fits no test is a failure. One figure: how many pass."""
    found, asked, alone = {}, 0, []
    try:
        rest = chosen
        while True:
            before = len(found)
            try:
                _run(context, program, rest)
            finally:
                found.update(context.told[0])
                asked = asked or context.told[1]
            if len(found) >= asked or len(found) == before:
                break
            rest = _without(chosen, found)
        for name in [name for name, outcome in found.items() if outcome in ('failed', 'crashed')]:
            if _run(context, program, name)[0].get(name) == 'ok':
                alone.append(name)
    finally:
        skipped = sum(outcome == 'skipped' for outcome in found.values())
        more = (f', {skipped} skipped' if skipped else '') + (f', {len(alone)} more alone' if alone else '')
        if asked:
            passed = sum(outcome == 'ok' for outcome in found.values())
            context.figure(f'{title}: tests that pass, of {asked}{more}', passed, '>=', asked - skipped)
    _judge(context, program, found, asked, alone)


def _judge(context, program, found, asked, alone):
    if asked == 0:
        raise Failed(f'{program} ran no test: {machine.last_words(context.path(f"{program}.txt"))}')
    if found and all(outcome == 'skipped' for outcome in found.values()):
        raise NotTaken(f'{program}: all its tests are skipped')
    wrong = [name for name, outcome in found.items() if outcome in ('failed', 'crashed')]
    if wrong:
        also = f', of which {len(alone)} pass alone' if alone else ''
        raise Failed(f'{program}: {len(wrong)} failed{also}: {", ".join(wrong[:3])}')
    if len(found) < asked:
        raise Failed(f'{program} ended after {len(found)} of {asked} tests')


def all_of(context, *parts):
    """Each of them, whatever the ones before said. A part is a function and its arguments after the context."""
    failures = []
    for function, *arguments in parts:
        try:
            function(context, *arguments)
        except (Failed, NotTaken) as error:
            failures.append(error)
    if failures:
        kind = Failed if any(isinstance(error, Failed) for error in failures) else NotTaken
        raise kind('; '.join(str(error) for error in failures))
