"""Ranks that meet: what a torch.distributed script needs of its launcher, with nothing but the standard library.

Checks the variables that torchrun and deepspeed give their ranks, lets rank 0 listen at MASTER_ADDR:MASTER_PORT and all
others connect, and prints one table of all ranks. Ends with 1 and a reason where something contradicts.
"""
import argparse
import json
import os
import socket
import sys
import time

NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_PORT")
WAIT_S = 60


def own_facts(local_rank):
    numbers = {name: int(os.environ[name]) for name in NUMBERS}
    problems = []
    if not 0 <= numbers["RANK"] < numbers["WORLD_SIZE"]:
        problems.append("RANK is not below WORLD_SIZE")
    if not 0 <= numbers["LOCAL_RANK"] < numbers["LOCAL_WORLD_SIZE"]:
        problems.append("LOCAL_RANK is not below LOCAL_WORLD_SIZE")
    if local_rank not in (None, numbers["LOCAL_RANK"]):
        problems.append(f"--local_rank={local_rank} contradicts LOCAL_RANK")
    return {**numbers, "host": socket.gethostname(), "pid": os.getpid(), "problems": problems}


def gather(facts):
    """All ranks' facts on rank 0, None elsewhere."""
    where = (os.environ["MASTER_ADDR"], facts["MASTER_PORT"])
    if facts["RANK"] != 0:
        end = time.monotonic() + WAIT_S
        while True:
            try:
                with socket.create_connection(where, timeout=WAIT_S) as link:
                    link.sendall(json.dumps(facts).encode() + b"\n")
                    link.makefile().readline()  # rank 0 has heard everybody
                return None
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
    links, everyone = [], [facts]
    with socket.create_server(where, backlog=4096) as server:
        server.settimeout(WAIT_S)
        while len(everyone) < facts["WORLD_SIZE"]:
            link, _ = server.accept()
            links.append(link)
            everyone.append(json.loads(link.makefile().readline()))
        for link in links:
            link.sendall(b"done\n")
    return everyone


def check_all(everyone):
    problems = [f"rank {facts['RANK']}: {text}" for facts in everyone for text in facts["problems"]]
    ranks = sorted(facts["RANK"] for facts in everyone)
    if ranks != list(range(len(everyone))):
        problems.append(f"the ranks are {ranks}")
    for node in {facts["GROUP_RANK"] for facts in everyone}:
        local = sorted(facts["LOCAL_RANK"] for facts in everyone if facts["GROUP_RANK"] == node)
        if local != list(range(len(local))):
            problems.append(f"the local ranks of node {node} are {local}")
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", "--local-rank", type=int)  # deepspeed gives it, torchrun does not
    parser.add_argument("--fail", type=int, help="this rank fails instead")
    arguments = parser.parse_args()
    facts = own_facts(arguments.local_rank)
    if arguments.fail == facts["RANK"]:
        sys.exit(f"rank {facts['RANK']} fails, as asked")
    everyone = gather(facts)
    if everyone is None:
        return
    for each in sorted(everyone, key=lambda facts: facts["RANK"]):
        print(f"rank {each['RANK']} of {each['WORLD_SIZE']}: node {each['GROUP_RANK']}, local rank {each['LOCAL_RANK']}")
    problems = check_all(everyone)
    print("the ranks agree" if not problems else "\n".join(problems))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
