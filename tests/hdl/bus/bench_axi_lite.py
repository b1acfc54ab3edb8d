"""Run in a simulator by test_axi_lite.py: cocotbext-axi's AXI4-Lite master at the registers of an AxiLite.

A job is a list of steps in the file that ``$LNS_BUS_JOB`` names. What each gave goes into ``result.json`` beside it.
"""

import itertools
import json
import os
import random
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

OKAY, SLVERR = 0, 2

PAUSES = {
    "never": lambda rng: None,
    "cycle": lambda rng: itertools.cycle([1, 1, 1, 0]),
    "random": lambda rng: iter(lambda: rng.random() < 0.5, None),
}


class Watch:
    """Checks in every clock that responses stay until they are taken and that none comes unasked."""

    def __init__(self, dut):
        self.dut = dut
        self.problems = []
        self.cycle = 0

    async def run(self):
        dut = self.dut
        held = {"b": None, "r": None}
        requests = {"aw": 0, "w": 0, "ar": 0}
        responses = {"b": 0, "r": 0}
        in_reset = False
        names = [f"s_axi_{channel}ready" for channel in requests] + [f"s_axi_{channel}valid" for channel in responses]
        while True:
            await RisingEdge(dut.aclk)
            self.cycle += 1
            outputs = {name: getattr(dut, name).value for name in names}
            if not all(value.is_resolvable for value in outputs.values()):
                self.problems.append(f"a handshake is unknown at clock {self.cycle}")
                continue
            if dut.aresetn.value == 0:
                if in_reset and any(value == 1 for value in outputs.values()):
                    self.problems.append(f"a handshake is set in a reset, at clock {self.cycle}")
                in_reset = True
                held = dict.fromkeys(held)
                requests, responses = dict.fromkeys(requests, 0), dict.fromkeys(responses, 0)
                continue
            in_reset = False
            for channel, payload in (("b", ("bresp",)), ("r", ("rdata", "rresp"))):
                now = None
                if outputs[f"s_axi_{channel}valid"] == 1:
                    now = "".join(str(getattr(dut, f"s_axi_{name}").value) for name in payload)
                    asked = min(requests["aw"], requests["w"]) if channel == "b" else requests["ar"]
                    if responses[channel] >= asked:
                        self.problems.append(f"an answer on {channel} at clock {self.cycle} that nothing asked for")
                    if set(now) - set("01"):
                        self.problems.append(f"an answer on {channel} is unknown at clock {self.cycle}")
                if held[channel] is not None and held[channel] != now:
                    self.problems.append(f"channel {channel} changed at clock {self.cycle} before it was taken")
                taken = getattr(dut, f"s_axi_{channel}ready").value == 1
                held[channel] = None if taken else now
                responses[channel] += int(taken and now is not None)
            for channel in requests:
                valid = getattr(dut, f"s_axi_{channel}valid").value == 1
                requests[channel] += int(valid and outputs[f"s_axi_{channel}ready"] == 1)


class Bench:
    """Does the steps."""

    def __init__(self, dut, rng):
        self.dut = dut
        self.rng = rng
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.aclk, dut.aresetn, False)
        for interface in (self.master.write_if, self.master.read_if):
            interface.log.setLevel("ERROR")
        self.channels = {
            "aw": self.master.write_if.aw_channel,
            "w": self.master.write_if.w_channel,
            "b": self.master.write_if.b_channel,
            "ar": self.master.read_if.ar_channel,
            "r": self.master.read_if.r_channel,
        }

    async def clocks(self, count):
        for _ in range(count):
            await RisingEdge(self.dut.aclk)

    async def reset(self, count=3):
        self.dut.aresetn.value = 0
        await self.clocks(count)
        self.dut.aresetn.value = 1
        await self.clocks(1)

    def pause(self, **kinds):
        """Set for each channel how it pauses; those that are not named never do."""
        for name, channel in self.channels.items():
            channel.set_pause_generator(PAUSES[kinds.get(name, "never")](self.rng))
            channel.pause = False

    async def write(self, address, data):
        done = await self.master.write(address, bytes.fromhex(data))
        return int(done.resp)

    async def read(self, address, length=4):
        done = await self.master.read(address, length)
        return [int(done.resp), done.data.hex()]

    async def hold(self, channel, clocks, address, data):
        """Write with one channel held back, so that the other's part comes so many clocks earlier."""
        self.channels[channel].pause = True
        event = self.master.init_write(address, bytes.fromhex(data))
        await self.clocks(clocks)
        self.channels[channel].pause = False
        await event.wait()
        return int(event.data.resp)

    async def irq(self):
        await self.clocks(3)
        return int(self.dut.irq.value)

    async def compute(self, payloads, push, results, reading=True):
        """Push payloads, each a list of writes, and read results at the same time: all registers of each.

        Refused pushes and reads are tried again. Returns the results, and how many were refused.
        """
        counts = {"push": 0, "pop": 0}
        found = []

        async def send():
            for writes in payloads:
                for address, data in writes:
                    if await self.write(address, data) != OKAY:
                        raise RuntimeError(f"a write to {address:#x} was refused")
                while await self.write(push, "01000000") != OKAY:
                    counts["push"] += 1

        async def receive():
            while len(found) < len(payloads):
                response, data = await self.read(results[0])
                if response != OKAY:
                    counts["pop"] += 1
                    await self.clocks(self.rng.randint(0, 3) * self.rng.randint(0, 30))
                    continue
                found.append([data, *[(await self.read(address))[1] for address in results[1:]]])

        sending = cocotb.start_soon(send())
        if not reading:
            await sending
            return {"results": [], "refused": counts}
        receiving = cocotb.start_soon(receive())
        await sending
        await receiving
        return {"results": found, "refused": counts}

    async def rate(self, address, registers):
        """Return the clocks that reading so many registers in a row takes, and those of writing them."""
        taken = []
        for transfer in (self.master.read(address, 4 * registers), self.master.write(address, bytes(4 * registers))):
            start = self.watch.cycle
            await transfer
            taken.append(self.watch.cycle - start)
        return taken

    async def burst(self, address, registers):
        """Read so many registers in a row, and write to them, many at once under way; return how many were answered."""
        events = [self.master.init_read(address, 4 * registers) for _ in range(3)]
        events += [self.master.init_write(address, bytes(4 * registers)) for _ in range(3)]
        for event in events:
            await event.wait()
        return [event.data.data.hex() for event in events[:3]]

    async def abandon(self, address, data, clocks):
        """Start writes and reads and reset in the middle of them."""
        for _ in range(6):
            self.master.init_write(address, bytes.fromhex(data))
            self.master.init_read(address, 4)
        await self.clocks(clocks)
        await self.reset()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def axi_lite(dut):
    job_file = Path(os.environ["LNS_BUS_JOB"])
    job = json.loads(job_file.read_text())
    dut.aresetn.value = 0
    Clock(dut.aclk, 10, unit="ns").start()
    bench = Bench(dut, random.Random(job["seed"]))
    bench.watch = watch = Watch(dut)
    await bench.clocks(3)
    cocotb.start_soon(watch.run())
    await bench.reset()
    answers = []
    for name, *arguments in job["steps"]:
        if name == "pause":
            bench.pause(**arguments[0])
            answers.append(None)
        else:
            answers.append(await getattr(bench, name)(*arguments))
    await bench.clocks(50)
    result = {"answers": answers, "problems": watch.problems, "clocks": watch.cycle}
    job_file.with_name("result.json").write_text(json.dumps(result))
