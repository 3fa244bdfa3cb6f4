"""A slow model of the orders of feeds, written from loaderd(1), ORDER AND RESUME, with which tests compare what the daemon delivers.

Nothing here is shared with the daemon: Philox4x32-10 and the Feistel permutation are written again, in Python's whole numbers.
"""

from bisect import bisect_right
from fractions import Fraction
from math import gcd

ORDER, COPY, MIXTURE, PART, DRAW, CLASSES, MEMBERS, BUCKETS, BLOCKS, GROUPS, PACKS, PACKING = 1, 9, 11, 12, 13, 14, 15, 16, 19, 20, 21, 22
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def philox(key, counter):
    """One block of Philox4x32-10."""
    k0, k1 = key
    a, b, c, d = counter
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ k0, q & M32, (p >> 32) ^ d ^ k1, p & M32
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return a, b, c, d


def stream(seed, epoch, sample, purpose, count):
    """The first `count` numbers of 32 bits of a stream."""
    key = philox((seed & M32, seed >> 32), (epoch & M32, epoch >> 32, purpose, 0))[:2]
    found, block = [], 0
    while len(found) < count:
        found += philox(key, (block, 0, sample & M32, sample >> 32))
        block += 1
    return found[:count]


def random_64(seed, epoch, sample, purpose):
    high, low = stream(seed, epoch, sample, purpose, 2)
    return high << 32 | low


def mix(x, key):
    product = ((x ^ key[0]) * 0xD256D193) & M64
    product = (((product >> 32) ^ (product & M32) ^ key[1]) * 0x9E3779B9) & M64
    return (product >> 32) ^ (product & M32)


def permuted(count, seed, number, sample, purpose):
    """Returns a keyed permutation of 0 .. count - 1 as a function."""
    if count <= 1:
        return lambda i: i
    bits = max(8, (count - 1).bit_length())
    right_bits = bits - bits // 2
    left_mask, right_mask = (1 << bits // 2) - 1, (1 << right_bits) - 1
    numbers = stream(seed, number, sample, purpose, 16)
    keys = list(zip(numbers[::2], numbers[1::2]))

    def at(i):
        while True:
            left, right = i >> right_bits, i & right_mask
            for k in range(0, 8, 2):
                left ^= mix(right, keys[k]) & left_mask
                right ^= mix(left, keys[k + 1]) & right_mask
            i = left << right_bits | right
            if i < count:
                return i

    return at


def blocked(count, seed, number, block_samples, group_blocks):
    """Returns a list of 0 .. count - 1 in the order of blocks."""
    blocks = [range(i, min(i + block_samples, count)) for i in range(0, count, block_samples)]
    at = permuted(len(blocks), seed, number, 0, BLOCKS)
    blocks = [blocks[at(i)] for i in range(len(blocks))]
    found = []
    for group, first in enumerate(range(0, len(blocks), group_blocks)):
        entries = [i for block in blocks[first : first + group_blocks] for i in block]
        at = permuted(len(entries), seed, number, group, GROUPS)
        found += [entries[at(i)] for i in range(len(entries))]
    return found


class Part:
    """One part: `entries` are the sample numbers that are drawn from; weights and class weights are one list per stage; blocks are (samples of a
    block, blocks of a group)."""

    def __init__(self, entries, first=0, weights=None, classes=None, class_weights=None, per_batch=0, blocks=None):
        self.blocks, self.passes = blocks, {}
        self.entries, self.first, self.weights, self.class_weights, self.per_batch = entries, first, weights, class_weights, per_batch
        self.members = None
        if classes is not None:
            self.members = [[sample for sample in entries if classes[sample] == c] for c in range(max(classes) + 1)]

    def seed(self, seed, number):
        return seed if number == 0 else random_64(seed, number, 0, PART)

    def draw(self, seed, shuffle, place, turn, stage):
        """Returns the sample of draw `place` of a pass."""
        if self.weights is not None:
            sums, total = [], 0.0
            for weight in self.weights[stage % len(self.weights)]:
                total += weight
                sums.append(total)
            point = (random_64(seed, turn, place, DRAW) >> 11) * 2.0**-53 * total
            return self.entries[bisect_right(sums, point)]
        if self.blocks:
            if turn not in self.passes:
                self.passes[turn] = blocked(len(self.entries), seed, turn, *self.blocks)
            return self.entries[self.passes[turn][place]]
        at = permuted(len(self.entries), seed, turn, 0, ORDER)(place) if shuffle else place
        return self.entries[at]


class Order:
    """An order of a feed. shares: one list per stage; froms: the stages' first batches over all ranks."""

    def __init__(self, parts, seed, step, shuffle=True, shares=None, froms=(0,), epoch_samples=0, ends="first", by_batch=False):
        self.parts, self.seed, self.step, self.shuffle, self.by_batch = parts, seed, step, shuffle, by_batch
        self.froms = froms
        self.unit = step if by_batch else 1
        self.epoch_samples = epoch_samples
        if len(parts) > 1:
            self.set_mixture(shares)
            self.epoch_samples = epoch_samples or self.length(ends)
        elif parts[0].per_batch:
            whole = epoch_samples or sum(map(len, parts[0].members))
            self.epoch_samples = whole // step * step
        self.continues = len(parts) > 1 or epoch_samples > 0 or len(froms) > 1
        self.epoch_samples = self.epoch_samples or len(parts[0].entries)

    def set_mixture(self, shares):
        """Stages of (first unit, shares, units of each part before)."""
        self.stages = []
        for row, batch in zip(shares, self.froms):
            divisor = gcd(*row)
            row = [share // divisor for share in row]
            unit, before = 0, [0] * len(row)
            if self.stages:
                begin, last, counted = self.stages[-1]
                periods = -((begin - batch * (self.step // self.unit)) // sum(last))
                unit = begin + periods * sum(last)
                before = [had + periods * share for had, share in zip(counted, last)]
            self.stages.append((unit, row, before))

    def length(self, ends):
        row = self.stages[0][1]
        periods = [(len(part.entries), share * self.unit) for part, share in zip(self.parts, row) if share]
        if ends == "last":
            samples = max(-(-count // share) for count, share in periods) * sum(row) * self.unit
            return -(-samples // self.step) * self.step
        samples = min(count // share for count, share in periods) * sum(row) * self.unit
        return samples // self.step * self.step

    def slot(self, unit):
        """Returns part and number of a unit of a mixture."""
        number, (begin, row, before) = [(i, stage) for i, stage in enumerate(self.stages) if stage[0] <= unit][-1]
        period, place = divmod(unit - begin, sum(row))
        if self.shuffle:
            slot = permuted(sum(row), self.seed, period, number, MIXTURE)(place)
        else:
            stride = max(1, int(sum(row) * 0.6180339887498949))
            while gcd(stride, sum(row)) != 1:
                stride += 1
            slot = place * stride % sum(row)
        part = 0
        while slot >= row[part]:
            slot -= row[part]
            part += 1
        return part, before[part] + period * row[part] + slot

    def class_batch(self, part, batch, place):
        each = self.step // part.per_batch
        present = [c for c, members in enumerate(part.members) if members]
        cycle, turn = divmod(batch * part.per_batch + place // each, len(present))
        c = present[permuted(len(present), self.seed, cycle, 0, CLASSES)(turn)]
        again, number = divmod(cycle * each + place % each, len(part.members[c]))
        return part.members[c][permuted(len(part.members[c]), self.seed, again, c, MEMBERS)(number)]

    def sample(self, epoch, position):
        """Returns the sample at a position of an epoch, without repeats."""
        part, number, draw = 0, position, epoch * self.epoch_samples + position
        if self.parts[0].per_batch:
            batch = epoch * (self.epoch_samples // self.step) + position // self.step
            return self.parts[0].first + self.class_batch(self.parts[0], batch, position % self.step)
        stage = 0
        turn = epoch
        if self.continues:
            stage = bisect_right(self.froms, draw // self.step) - 1
            number = draw
            if len(self.parts) > 1:
                part, number = self.slot(draw // self.unit)
                number = number * self.unit + draw % self.unit
            turn, number = divmod(number, len(self.parts[part].entries))
        chosen = self.parts[part]
        return chosen.first + chosen.draw(chosen.seed(self.seed, part), self.shuffle, number, turn, stage)

    def epoch(self, number):
        return [self.sample(number, position) for position in range(self.epoch_samples)]


def nearest_bucket(sizes, width, height):
    """Returns the number of the bucket of an image."""

    def badness(i):
        w, h = sizes[i]
        ratio = Fraction(w * height, h * width)
        fits = w <= width and h <= height
        return max(ratio, 1 / ratio), not fits, -w * h if fits else w * h, i

    return min(range(len(sizes)), key=badness)


class Buckets:
    """The batches over all ranks of a feed with buckets. images: (width, height) of each sample; entries: those that are drawn from;
    steps: samples per batch over all ranks, of each bucket."""

    def __init__(self, sizes, images, entries, seed, steps, shuffle=True):
        self.sizes, self.seed, self.steps, self.shuffle = sizes, seed, steps, shuffle
        self.members = [[i for i in entries if nearest_bucket(sizes, *images[i]) == b] for b in range(len(sizes))]

    def epoch(self, number, short=True):
        """Returns (size, samples) of each batch."""
        whole, tails = [], []
        for b, members in enumerate(self.members):
            at = permuted(len(members), self.seed, number, b, MEMBERS) if self.shuffle else lambda i: i
            drawn = [members[at(i)] for i in range(len(members))]
            step = self.steps[b]
            cut = len(drawn) // step * step
            whole += [(self.sizes[b], drawn[i : i + step]) for i in range(0, cut, step)]
            tails += [(self.sizes[b], drawn[cut:])] if cut < len(drawn) else []
        if self.shuffle:
            at = permuted(len(whole), self.seed, number, 0, BUCKETS)
            whole = [whole[at(i)] for i in range(len(whole))]
        return whole + (sorted(tails, key=lambda tail: -len(tail[1])) if short else [])


def patch_grid(width, height, patch, most, least=1):
    """Returns rows and columns of the patches that patch_resize makes of an image: by a look at all grids, from the smallest scale on."""
    side, grids, grid = 4096 // patch, [], (1, 1)
    while max(grid) <= side and grid[0] * grid[1] <= most:
        grids.append(grid)
        rows, columns = grid[0] * width, grid[1] * height
        grid = grid[0] + (rows <= columns), grid[1] + (columns <= rows)
    own = -(-height // patch), -(-width // patch)
    fitting = own if own in grids else grids[-1]
    if fitting[0] * fitting[1] >= least:
        return fitting
    return next((grid for grid in grids if grid[0] * grid[1] >= least), grids[-1])


class Packs:
    """The batches of a feed with batch_tokens. tokens: (tokens, patches) of each sample; entries: those that are drawn from."""

    def __init__(self, tokens, entries, seed, most, batch_size, shuffle=True):
        self.seed, self.shuffle = seed, shuffle
        self.classes = sorted({tokens[i][0] for i in entries})
        self.members = [sorted((i for i in entries if tokens[i][0] == c), key=lambda i: tokens[i][1]) for c in self.classes]
        self.left = [len(members) for members in self.members]
        self.numbers = self._numbers()
        self.packs, used = [], [0] * len(self.classes)
        while sum(self.left):
            pack = self._pack(most, batch_size)
            for c in pack:
                self.left[c] -= 1
            times = min([1 + sum(self.left) // len(pack) // 256] + [1 + self.left[c] // pack.count(c) for c in pack])
            for c in set(pack):
                self.left[c] -= pack.count(c) * (times - 1)
            for _ in range(times):
                places = []
                for c in pack:
                    places.append((c, used[c]))
                    used[c] += 1
                self.packs.append(places)

    def _numbers(self):
        found = 0
        while True:
            yield from stream(self.seed, 0, 0, PACKING, found + 4096)[found:]
            found += 4096

    def _draw(self, left):
        bits = next(self.numbers) << 32 | next(self.numbers)
        number = bits * sum(left) >> 64
        for c, count in enumerate(left):
            if number < count:
                return c
            number -= count
        raise AssertionError

    def _largest(self, left, room):
        return max((c for c, count in enumerate(left) if count and self.classes[c] <= room), default=None)

    def _pack(self, most, batch_size):
        left, pack, room = list(self.left), [], most

        def take(c):
            nonlocal room
            left[c] -= 1
            room -= self.classes[c]
            pack.append(c)

        def put_back():
            nonlocal room
            c = pack.pop()
            left[c] += 1
            room += self.classes[c]
            return c

        while len(pack) < batch_size and sum(left):
            c = self._draw(left)
            if self.classes[c] > room:
                break
            take(c)
        if pack and len(pack) < batch_size and sum(left):
            drawn = best = put_back()
            filled = 0
            for i in range(32):
                if filled >= room:
                    break
                first = drawn if i == 0 else self._draw(left)
                if self.classes[first] > room:
                    continue
                here = self.classes[first]
                take(first)
                second = self._largest(left, room) if len(pack) < batch_size else None
                put_back()
                here += 0 if second is None else self.classes[second]
                if here > filled:
                    best, filled = first, here
            take(best)
        while len(pack) < batch_size:
            c = self._largest(left, room)
            if c is None:
                break
            take(c)
        return pack

    def epoch(self, number):
        """Returns the samples of each pack."""
        at = [permuted(len(m), self.seed, number, c, MEMBERS) if self.shuffle else lambda i: i for c, m in enumerate(self.members)]
        packs = [[self.members[c][at[c](place)] for c, place in pack] for pack in self.packs]
        order = permuted(len(packs), self.seed, number, 0, PACKS) if self.shuffle else lambda i: i
        return [packs[order(i)] for i in range(len(packs))]
