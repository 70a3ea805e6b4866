"""Chakra's execution traces through Google's own protocol buffers: what `simulate --chakra` writes is parsed with Chakra's
schema and run by ASTRA-sim's rules, and what Google's library writes is read by `analyze`. ASTRA-sim itself is not at hand.
Exit status 77 (skipped) where protobuf is missing.

usage: chakra_files.py PIPEWRIGHT
"""

import heapq
import json
import os
import subprocess
import sys
import tempfile

from planned import SKIPPED

COMP, SEND, RECV = 4, 5, 6
# Schedule, ranks, micro-batches, chunks, whether its actions can be told without names.
CASES = (
    ("gpipe", 4, 6, 1, True),
    ("1f1b", 4, 8, 1, True),
    ("interleaved", 3, 6, 2, True),
    ("zb-h1", 4, 8, 1, False),
    ("zbv", 4, 8, 2, False),
    ("dualpipev", 4, 8, 2, False),
)
COSTS = "F=9us,B=21us,I=13us,W=8us,opt=5us"


def schema():
    """The messages of et_def.proto, with the fields that matter here."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="et", syntax="proto3")

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, field, kind, repeated in fields:
            added = made.field.add(name=field, number=number, label=3 if repeated else 1)
            if isinstance(kind, str):
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".et.{kind}"
            else:
                added.type = kind
        return made

    attribute = message("Attribute", (1, "name", kinds.TYPE_STRING, False))
    attribute.oneof_decl.add(name="value")
    for number, kind in ((7, "INT32"), (9, "INT64"), (11, "UINT32"), (13, "UINT64"), (17, "SINT64"), (27, "BOOL")):
        field = attribute.field.add(name=f"{kind.lower()}_val", number=number, label=1, oneof_index=0)
        field.type = getattr(kinds, f"TYPE_{kind}")
    message("Metadata", (1, "version", kinds.TYPE_STRING, False), (2, "attr", "Attribute", True))
    message(
        "Node",
        (1, "id", kinds.TYPE_UINT64, False),
        (2, "name", kinds.TYPE_STRING, False),
        (3, "type", kinds.TYPE_UINT64, False),
        (4, "ctrl_deps", kinds.TYPE_UINT64, True),
        (5, "data_deps", kinds.TYPE_UINT64, True),
        (6, "start_time_micros", kinds.TYPE_UINT64, False),
        (7, "duration_micros", kinds.TYPE_UINT64, False),
        (10, "attr", "Attribute", True),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = (message_factory.GetMessageClass(pool.FindMessageTypeByName(f"et.{name}")) for name in ("Metadata", "Node"))
    return tuple(made)


def parsed(path, metadata, node):
    """The nodes of a file; nothing may be left over or unknown."""
    with open(path, "rb") as file:
        left = file.read()
    messages = []
    while left:
        size = shift = 0
        while True:
            byte, left = left[0], left[1:]
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        assert size <= len(left), f"{path} is cut short"
        messages.append((node if messages else metadata).FromString(left[:size]))
        left = left[size:]
    from google.protobuf.unknown_fields import UnknownFieldSet

    for message in messages:
        assert len(UnknownFieldSet(message)) == 0, f"{path}: {message}"
    assert messages[0].version, path
    return messages[1:]


def written(path, metadata, nodes):
    def framed(message):
        bytes_, size, head = message.SerializeToString(), 0, b""
        size = len(bytes_)
        while size >= 0x80:
            head += bytes([0x80 | size & 0x7F])
            size >>= 7
        return head + bytes([size]) + bytes_

    with open(path, "wb") as file:
        file.write(framed(metadata) + b"".join(map(framed, nodes)))


def values(node):
    return {attr.name: getattr(attr, attr.WhichOneof("value")) for attr in node.attr}


def makespan(ranks):
    """As ASTRA-sim issues nodes (astra-sim/workload/Workload.cc and HardwareResource.cc): whatever has no dependency left, the
    least id first, one computation and one message of a rank under way at a time. Messages take no time, so that a SEND ends
    at once and a RECV when its SEND has."""
    missing = [{n.id: set(n.data_deps) | set(n.ctrl_deps) for n in nodes} for nodes in ranks]
    by_id = [{n.id: n for n in nodes} for nodes in ranks]
    busy = [{"comp": False, "comm": False} for _ in ranks]
    ready = [sorted(i for i, needs in each.items() if not needs) for each in missing]
    sent, waiting, ends, now, done = set(), {}, [], 0, 0

    def issue(rank):
        for id_ in list(ready[rank]):
            node, facts = by_id[rank][id_], values(by_id[rank][id_])
            kind = "comp" if node.type == COMP else "comm"
            if busy[rank][kind]:
                continue
            busy[rank][kind] = True
            ready[rank].remove(id_)
            key = (facts.get("comm_src"), facts.get("comm_dst"), facts.get("comm_tag"))
            if node.type == SEND:
                assert facts["comm_src"] == rank
                sent.add(key)
                if key in waiting:
                    heapq.heappush(ends, (now, *waiting.pop(key)))
            if node.type == RECV and key not in sent:
                assert facts["comm_dst"] == rank
                waiting[key] = (rank, id_)
                continue
            heapq.heappush(ends, (now + node.duration_micros, rank, id_))

    for rank in range(len(ranks)):
        issue(rank)
    while ends:
        now, rank, id_ = heapq.heappop(ends)
        done += 1
        busy[rank]["comp" if by_id[rank][id_].type == COMP else "comm"] = False
        for other, needs in missing[rank].items():
            if id_ in needs:
                needs.discard(id_)
                if not needs:
                    ready[rank] = sorted([*ready[rank], other])
        issue(rank)
    assert done == sum(map(len, ranks)), f"ASTRA-sim would hang: {sum(map(len, ranks)) - done} nodes are left"
    return now


def nameless(nodes):
    """Names say nothing, and numbers are of other types."""
    for node in nodes:
        node.name = {COMP: "COMP_NODE", SEND: "COMM_SEND_NODE", RECV: "COMM_RECV_NODE"}[node.type]
        for attr in node.attr:
            value = getattr(attr, attr.WhichOneof("value"))
            if attr.name in ("comm_src", "comm_dst"):
                attr.uint32_val = value
            elif attr.name == "comm_tag":
                attr.sint64_val = value
    return nodes


def analyzed(command, folder):
    order = os.path.join(folder, "order.csv")
    done = subprocess.run([command, "analyze", folder, "-o", order, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(order) as file:
        return file.read(), json.loads(done.stdout)["makespan_ns"]


def main():
    command = os.path.abspath(sys.argv[1])
    try:
        metadata, node = schema()
    except ImportError as error:
        print(f"skipped: protobuf is not installed ({error})")
        return SKIPPED
    for schedule, p, m, v, by_messages in CASES:
        with tempfile.TemporaryDirectory() as folder:
            words = ["-s", schedule, "-p", str(p), "-m", str(m), *(["-v", str(v)] if schedule == "interleaved" else [])]
            words += ["--cost", COSTS, "--message-bytes", "4096", "--chakra", folder, "--emit-order", "--json"]
            done = subprocess.run([command, "simulate", *words], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            fields = json.loads(done.stdout)
            names = [os.path.join(folder, f"job.{r}.et") for r in range(p)]
            ranks = [parsed(name, metadata, node) for name in names]
            took = makespan(ranks) * 1000
            assert took == fields["makespan_ns"], f"{schedule}: {took} by ASTRA-sim's rules, {fields['makespan_ns']}"
            sizes = {values(n)["comm_size"] for nodes in ranks for n in nodes if n.type != COMP}
            assert sizes == {4096}, sizes
            order, read = analyzed(command, folder)
            wanted = "".join(",".join(filter(None, row)) + "\n" for row in fields["order"])
            assert (order, read) == (wanted, took), f"{schedule}: {read}\n{order}\n{wanted}"
            if by_messages:
                for name, nodes in zip(names, ranks):
                    written(name, metadata(version="0.0.4"), nameless(nodes))
                again, read = analyzed(command, folder)
                assert (again, read) == (wanted, took), f"{schedule} without names: {read}\n{again}\n{wanted}"
            count = sum(map(len, ranks))
        print(f"{schedule}: {count} nodes of {p} ranks, {took // 1000} us by ASTRA-sim's rules and by analyze, order as written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
