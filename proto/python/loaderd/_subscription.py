"""Feed: the subscription to a dataset, and its iterators."""

import os
import warnings
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, NoReturn, Optional, Sequence, Set, Tuple, Type, Union

from ._batch import Batch
from ._buckets import OpenedBucket, parse as parse_buckets
from ._checks import choice, flag, level_of_caller, milliseconds, number, refuse_unknown, text
from ._daemon import Daemon, Settings, choose
from ._dataset import dataset as facts_of, uuid_text
from ._errors import BadOption, FeedError, RankChanged
from ._launchers import Place, group
from ._order import Blocks, OpenedPart, Order, Part, Path, blocks_of, compare, make
from ._options import BAD, LAST, Options, last_of, reconnect_timeout_ms
from ._ranks import NO_DATALOADER, Number, RankWarning, is_given, resolve, uneven_packs, uneven_ranks
from ._stream import LABELS, Source
from ._wanted import numbers, refuse, refuse_order

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def parts_of(dataset: Any, where: str, samples: Any, weights: Any, class_weights: Any, classes_per_batch: int) -> Sequence[Part]:
    """Returns the parts of a feed: those given, or the only one, with the choice given beside it."""
    chosen = {"where": where, "samples": samples, "weights": weights, "class_weights": class_weights, "classes_per_batch": classes_per_batch}
    if not isinstance(dataset, (Part, list, tuple)):
        return [Part(dataset, **chosen)]
    for name, value in chosen.items():
        if value is not None and not (isinstance(value, (int, str)) and not value):
            raise BadOption(f"{name}: belongs to the Parts: Part(path, {name}=...)", 22)
    parts = [dataset] if isinstance(dataset, Part) else list(dataset)
    if not parts:
        raise BadOption("dataset: the list of Parts is empty", 22)
    for part in parts:
        if not isinstance(part, Part):
            raise TypeError(f"dataset: {part!r} is no Part; a mixture is a list of them, [Part({part!r}, share=1), ...]")
    return parts


class _Epoch:
    """Iterator over a feed's batches to the end of the epoch, or over the requested batches of a wanted feed."""

    def __init__(self, feed: "Feed") -> None:
        self._feed = feed
        self._number = feed._iterators
        self._over = False

    def __iter__(self) -> "_Epoch":
        return self

    def __next__(self) -> Batch:
        if self._over:
            raise StopIteration
        if self._feed._iterators != self._number:
            raise FeedError(
                "a newer iterator of this feed, or its load_state_dict() or reset(), has replaced this iterator, because a feed has one "
                "position: use the newer one, make one with iter(feed), or open a feed for each", 22,
            )  # fmt: skip
        batch = self._feed._next_of_epoch()
        self._over = batch is None or (batch.last and not self._feed._wanted)
        if batch is None:
            raise StopIteration
        return batch


class Feed:
    """One subscription to a dataset: batches to iterate over.

    Each `for` loop over a Feed, and each iter(feed), is an epoch: the first one begins at the position given here or to
    load_state_dict(), which may be in the middle of an epoch, and every later one at the first batch of the next epoch, even if the
    loop before was left early. set_epoch() and reset() choose another epoch. next(feed) takes batches outside of loops, across the
    ends of epochs; a first loop continues after them. `epoch_end` ends the feed for good.

    dataset      path of a .pimg file or set of shards, or an address in a store, s3://, https:// or http://; or a Part, or a list of Parts, which are mixed by their shares
    pipeline     transforms applied to each image, see loaderd(1); "" delivers stored pixels, which must have equal size
    batch_size   samples per batch of this rank
    shuffle      a new order each epoch, derived from seed; otherwise the stored order
    seed         determines, with (epoch, sample), order, crops and augmentation, on any machine and with any number of threads
    epoch, batch position to start at
    epoch_end    exclusive end epoch; None means unlimited
    rank, world  this process's part of each epoch. "auto" takes them from torch.distributed or jax.distributed once initialized,
                 else from the launcher's variables (torchrun, Lightning, DeepSpeed, mpirun, srun and others), else 0 of 1; each worker
                 of a DataLoader gets a share of that part. It decides at the first batch, so a feed may be made before the process
                 group; if the group later has another rank, the next batch raises RankChanged. None acts like "auto", with a RankWarning
                 if this is one process of several
    drop_last    drop an incomplete last batch of an epoch; False, the default, delivers it. A RankWarning reports if it has too few
                 samples for all ranks
    last         deprecated: "drop" and "short" are drop_last=True and False
    where, samples, weights, class_weights, classes_per_batch
                 which samples of the dataset to draw, and how often, see Part
    epoch_samples number of samples of an epoch over all ranks; 0 means as many as the dataset has, or the mixture until it ends. Epochs of
                 this length go on where the one before ended
    ends         "first": an epoch of a mixture ends before some part would begin anew; "last": when as many samples of each part have come
                 as it has. epoch_samples takes precedence
    buckets      sizes (width, height) of finished images, of which bucket_sizes() makes a list: each batch over all ranks has samples of one
                 bucket, that of the nearest aspect ratio, and "bucket_resize" in the pipeline makes its images of that size. Each sample
                 comes once per epoch; what is left of each bucket comes in smaller batches at its end, or with drop_last not at all
    batch_pixels with buckets: the most pixels of a batch of this rank; buckets of large images then have fewer than batch_size samples in
                 each batch. 0 means no limit
    order        "samples": each epoch permutes all samples. "blocks", with shuffle: it permutes blocks of block_samples neighbouring samples, and
                 then the samples of each group_blocks successive blocks among themselves, so that large pieces of the files are read at a
                 time. By default, 0, blocks have about 1 MiB and groups about 256 MiB, at most 16,384 samples, by the first part's files and
                 divided by the number of parts; a state_dict() keeps the numbers
    batch_tokens each batch of this rank has as many samples as have this many tokens together, at most batch_size: the patches that
                 "patch_resize" in the pipeline makes of an image, and what tokens_field says. Each sample comes once per epoch. 0 means
                 batch_size samples
    tokens_field name of a column of integers: tokens of each sample in addition to its patches, such as those of its caption
    mix          "sample" mixes parts within a batch; "batch" takes each batch over all ranks from one part, in the same shares
    repeats      number of times each sample appears in its batch, with independent augmentation; must divide batch_size times world
    bad          "substitute", "skip" or "fail": handling of samples that cannot be decoded
    slots        ring slots, each for one batch; 0 lets the daemon choose
    wanted       deliver the batches that want() requests, instead of drawing an order; shuffle, epoch, batch, epoch_end, rank, world, drop_last
                 and repeats have no meaning then
    values       names of values of the dataset's schema to deliver in addition to image, label and sample number, see Batch.value; without a
                 schema, each field is a value with its name. Values are never truncated. Cannot be combined with fields
    fields       names of extra fields to deliver, see Batch.field and dataset(). KEY delivers the names of the samples' source files;
                 DEFERRED delivers the last transforms of the pipeline, left to the client, without applying them to the images
    field_bytes  capacity of a text, bytes or JSON value; 0 means the longest value's size, or 256 if the file does not record it
    cut_values   truncate longer values and set the flag FIELD_CUT; otherwise they are an error, here if the file records their length,
                 else at the first such value
    name         shown by `loaderctl status`
    writable     writes to a batch go to the shared memory itself instead of private pages, for GPUs that cannot register
                 read-only memory; the daemon may refuse. See pin()
    timeout      seconds to wait for a batch; None means no limit
    reconnect    if the daemon goes away, wait for the next one up to this number of seconds (True means 60, None no limit) and
                 continue with the next batch; the logger "loaderd" gets one line. False raises DaemonGone at once
    socket       socket of the daemon; "@name" for an abstract one
    daemon       "auto" uses socket, else $LOADERD_SOCKET, else the user's or the system's service if it answers within ten seconds,
                 else a private daemon that this process's feeds share and that ends with the process; the logger "loaderd" warns of
                 a service that does not answer. "system" never uses a private daemon, "private" always
    threads      number of threads of a private daemon started for this feed; 0 means all CPUs, divided by the ranks on this machine
    settings     settings of a private daemon (daemon="private"), see Daemon; feeds with the same settings share one

    If a dataset with classes has a sample without a label, the feed issues one LabelWarning at the first such batch, unless it asks
    for values without the label.

    A feed belongs to one thread at a time, but any thread may use and drop batches. A feed does not survive a fork: open it in
    the process that reads from it.
    """

    def __init__(
        self,
        dataset: Union[Path, Part, Sequence[Part]],
        *,
        pipeline: str = "",
        batch_size: int = 256,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        batch: int = 0,
        epoch_end: Optional[int] = None,
        rank: Number = None,
        world: Number = None,
        drop_last: Optional[bool] = None,
        last: Optional[str] = None,
        where: str = "",
        samples: Any = None,
        weights: Any = None,
        class_weights: Any = None,
        classes_per_batch: int = 0,
        epoch_samples: int = 0,
        ends: str = "first",
        mix: str = "sample",
        buckets: Optional[Sequence[Tuple[int, int]]] = None,
        batch_pixels: int = 0,
        order: str = "samples",
        block_samples: int = 0,
        group_blocks: int = 0,
        batch_tokens: int = 0,
        tokens_field: str = "",
        repeats: int = 1,
        wanted: bool = False,
        bad: str = "substitute",
        slots: int = 0,
        values: Sequence[str] = (),
        fields: Sequence[str] = (),
        field_bytes: int = 0,
        cut_values: bool = False,
        name: str = "",
        writable: bool = False,
        timeout: Optional[float] = None,
        reconnect: Union[bool, float, None] = True,
        socket: Optional[str] = None,
        daemon: str = "auto",
        threads: int = 0,
        settings: Optional[Settings] = None,
        **unknown: NoReturn,
    ) -> None:
        if unknown:
            refuse_unknown(unknown, Feed.__init__.__kwdefaults__ or ())
        if isinstance(fields, str):
            raise BadOption("fields: must be a list of names, not one string", 22)
        if isinstance(values, str):
            raise BadOption("values: must be a list of names, not one string", 22)
        if batch_size == 0:
            raise BadOption("batch_size: 0 is below the minimum of 1", 22)
        self._wanted = flag("wanted", wanted)
        parts = parts_of(dataset, where, samples, weights, class_weights, classes_per_batch)
        if self._wanted:
            refuse_order(locals())
            rank, world, drop_last = 0, 1, True
        self._fields = tuple(fields)
        self._empty = epoch_end is not None and epoch_end == 0  # 0 means unlimited to the daemon
        self._timeout_ms = milliseconds("timeout", timeout)
        self._given = rank, world
        self._decided = is_given(rank, world)  # the rank can no longer change
        self._follows = not self._decided
        self._agreed: Optional[Place] = None  # the group's place at the last comparison with this feed's
        self._warnings: Set[str] = set()  # already issued
        part = resolve(rank, world)
        if not self._wanted:
            self._warn(part.warning, RankWarning)
        self._options: Options = {
            "dataset": None,
            "pipeline": text("pipeline", pipeline),
            "name": text("name", name),
            "batch_size": number("batch_size", batch_size, 32),
            "shuffle": flag("shuffle", shuffle),
            "seed": number("seed", seed, 64),
            "epoch_end": 0 if epoch_end is None else number("epoch_end", epoch_end, 64),
            "rank": number("rank", part.rank, 32),
            "world": number("world", part.world, 32),
            "last": last_of(drop_last, last, level_of_caller()),
            "repeats": number("repeats", repeats, 32),
            "bad": choice("bad", bad, BAD),
            "slots": number("slots", slots, 32),
            "fields": self._fields,
            "field_bytes": number("field_bytes", field_bytes, 32),
            "cut_values": flag("cut_values", cut_values),
            "writable": flag("writable", writable),
            "reconnect": reconnect is not False,
            "reconnect_timeout_ms": reconnect_timeout_ms(reconnect),
            "wanted": self._wanted,
            "values": tuple(values),
            "order": None,
        }
        position = number("epoch", epoch, 64), number("batch", batch, 64)
        address, private = choose(socket, daemon, threads, settings)
        self._order: Optional[Order] = None
        self._buckets = parse_buckets(buckets, batch_size, batch_pixels)
        self._given_blocks = block_samples, group_blocks
        blocks = blocks_of(order, *self._given_blocks, len(parts), lambda: facts_of(parts[0].dataset, socket=address).blocks)
        packs = number("batch_tokens", batch_tokens, 32), text("tokens_field", tokens_field), batch_size
        if packs[1] and not packs[0]:
            raise BadOption("tokens_field: is for feeds with batch_tokens, and there are none: give these, or omit it", 22)
        self._packed = packs[0] > 0
        if len(parts) > 1 or epoch_samples or self._buckets or blocks.samples or self._packed or parts[0].chooses():
            plain = make(parts, ends, epoch_samples, mix, self._buckets, packs, lambda path: facts_of(path, socket=address).classes)
            self._order = plain.with_blocks(blocks)
            self._options["order"] = self._order.native
        else:
            self._options["dataset"] = os.fsencode(parts[0].dataset)
        self._paths = tuple(part.dataset for part in parts)
        self._iterators = 0  # number created so far
        self._begun = False  # an iterator has taken a batch since the position was set
        self._taken: Optional[int] = None  # epoch of the last batch taken since then
        self._pending: Optional[Tuple[int, int]] = None  # where the next loop begins; None: at the stream's position
        self._loaded: Optional[Tuple[int, int]] = None  # from load_state_dict(): epoch, and the samples of it that all ranks have received
        self._left = 0  # requested batches not yet handed out
        self._source = Source(address, private, self._options, position)
        # a feed that asks for other values does not use the label
        self._reads_labels = not values or any(number == LABELS and name in values for name, (number, _) in self._source.sections.items())
        self._warned = False  # has warned about a missing label
        self._start = self._source.position  # the last position set
        self._warn_of_uneven_ranks()

    def _warn(self, message: Optional[str], category: Type[Warning]) -> None:
        if message and message not in self._warnings:
            self._warnings.add(message)
            warnings.warn(message, category, stacklevel=level_of_caller())

    def _warn_of_uneven_ranks(self) -> None:
        options = self._options
        if options["last"] == LAST["short"] and options["world"] > 1 and self._packed:
            self._warn(uneven_packs(self._source.info["epoch_batches"], options["world"]), RankWarning)
        elif options["last"] == LAST["short"] and options["world"] > 1:
            whole = [self._source.info["epoch_samples"] or self.samples]
            sizes = [bucket[2] for bucket in self._buckets] or [options["batch_size"]]
            counts = zip(self._source.buckets or whole, sizes)
            texts = [uneven_ranks(n, size, options["world"], options["repeats"]) for n, size in counts]
            self._warn(next(filter(None, texts), None), RankWarning)

    def _step(self) -> int:
        """Number of samples in a batch of all ranks together."""
        return self._options["batch_size"] * max(1, self._options["world"])

    def _follow(self) -> None:
        """Updates rank and world to what is known now."""
        part = resolve(*self._given)
        self._warn(part.warning, RankWarning)
        self._options["rank"], self._options["world"] = part.rank, part.world

    def _stand_at(self, position: Optional[Tuple[int, int]]) -> None:
        """Moves the stream to a position (None: keeps the current one), with the rank as it is known now."""
        source = self._source
        if not self._decided and source.is_ours:
            self._follow()
        if source.closed and not source.closed_by:
            return  # closed by close(): taking a batch raises
        if position is None:
            position = source.position
            if self._loaded is not None and source.is_outdated:
                position = self._loaded[0], self._batch_after(self._loaded[1])
        elif position != source.position:
            self._loaded, self._start = None, position
        if source.closed or source.is_outdated or source.position != position:
            source.move(position)
            self._warn_of_uneven_ranks()

    def _decide(self) -> None:
        """Determines the rank at the first batch; later compares it with that of the process group."""
        if not self._source.is_ours:
            return  # taking a batch raises
        if not self._decided:
            unknown = resolve(*self._given).unknown
            if unknown:
                raise BadOption(unknown, 22)
            self._stand_at(None)
            self._decided, self._agreed = True, None
        here = group()
        if here is None or here == self._agreed:
            return
        part, own = resolve(*self._given), self._options
        if (part.rank, part.world) != (own["rank"], own["world"]):
            raise RankChanged(
                f"this feed is rank {own['rank']} of {own['world']}, but {here.source} has since made this process rank {part.rank} of "
                f"{part.world}, so that ranks would get the same samples. Call feed.reset(), which begins the epoch again with the new "
                "rank, take the first batch after the group is initialized, or set rank= and world=", 22,
            )  # fmt: skip
        self._agreed = here

    def __iter__(self) -> Iterator[Batch]:
        """Begins an epoch: at the position that was set, or, if a loop has taken batches since, at the first batch of the next epoch.

        A feed has one position: only its latest iterator is valid. Older ones, and ones made before load_state_dict(), raise
        FeedError, as do ones made before reset(). After a loop that was left early the feed is reopened at its new position; its
        batches remain valid. A wanted feed's iterator yields the batches that are wanted, until there are none left.
        """
        if not self._wanted:
            position = self._pending
            if position is None and self._begun:
                epoch, batch = self._source.position
                position = (epoch + 1, 0) if batch else None
            self._stand_at(position)
            self._pending, self._begun = None, False
        self._iterators += 1
        return _Epoch(self)

    def _next_of_epoch(self) -> Optional[Batch]:
        if self._wanted and self._left == 0:
            return None
        batch = self._take(self._timeout_ms)
        self._begun = self._begun or batch is not None
        return batch

    def __next__(self) -> Batch:
        """Like next(), but raises StopIteration at the feed's end."""
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def next(self, timeout: Optional[float] = None) -> Optional[Batch]:
        """Returns the next batch, continuing across epochs, or None at the feed's end. timeout is in seconds; None means the feed's."""
        timeout_ms = self._timeout_ms if timeout is None else milliseconds("timeout", timeout)
        if self._pending is not None:
            self._stand_at(self._pending)
            self._pending, self._begun = None, False
        return self._take(timeout_ms)

    def _take(self, timeout_ms: int) -> Optional[Batch]:
        if self._empty and not self._source.closed:
            return None
        if self._follows and not self._source.closed:
            self._decide()
        slot = self._source.next(timeout_ms)
        if slot is None:
            return None
        batch = Batch(slot, self._fields, self._source)
        self._taken, self._loaded = batch.epoch, None
        self._left -= self._wanted
        if self._reads_labels and not self._warned and self.classes:
            self._warned = batch.warn_of_missing_labels(self._path)
        if batch.reconnects != self._source.info["reconnects"]:
            self._source.note_reconnect()
        return batch

    def set_epoch(self, epoch: int) -> None:
        """Begins the next loop with the first batch of an epoch.

        If no batch has been taken since the feed was opened, or since load_state_dict(), and this is the epoch of that position, the
        position stays: a loop that calls set_epoch(epoch) each time resumes in the middle of its first epoch.
        """
        if self._wanted:
            refuse("set_epoch", self._wanted)
        number("epoch", epoch, 64)
        self._pending = None if self._taken is None and epoch == self._start[0] else (epoch, 0)

    def reset(self) -> None:
        """Begins the next loop with the first batch of the same epoch: that of the last batch taken, else that of the position.

        The feed determines its rank again, unless it was given as numbers.
        """
        if self._wanted:
            refuse("reset", self._wanted)
        self._pending = (self.position[0] if self._taken is None else self._taken), 0
        self._decided = not self._follows
        self._iterators += 1  # older iterators would continue with the old rank

    def want(self, epoch: int, samples: "Union[Sequence[int], NDArray[Any], Tensor]") -> None:
        """Requests a batch of these samples, 1 to batch_size of them, in this order; next(feed) returns batches in the order of the requests.

        Bytes depend on (seed, epoch, sample), and, for a sample that occurs several times in the batch, on the number of the occurrence.
        Request batches before their use, so that the daemon can work ahead: `slots` batches may be held, and 16 more may be pending; one
        more is a FeedError with code EAGAIN. A sample number that the dataset lacks is a BadOption.
        """
        if not self._wanted:
            refuse("want", self._wanted)
        self._source.want(number("epoch", epoch, 64), numbers(samples))
        self._left += 1

    def forget(self) -> None:
        """Cancels all requested batches that have not been handed out."""
        if not self._wanted:
            refuse("forget", self._wanted)
        self._source.forget()
        self._left = 0

    def __len__(self) -> int:
        """Batches per epoch for this rank; in a wanted feed, requested batches that have not been handed out."""
        if self._wanted:
            return self._left
        if not self._decided and self._source.is_ours:
            self._stand_at(None)
        return self._source.info["batches_per_epoch"]

    @property
    def samples(self) -> int:
        """Samples in the dataset, or in those of all parts."""
        return self._source.info["samples"]

    @property
    def parts(self) -> Sequence[OpenedPart]:
        """The parts of the feed; empty unless it has Parts, chooses samples, or was given epoch_samples."""
        return tuple(
            OpenedPart(path, first, samples, chosen, uuid_text(uuid))
            for path, (first, samples, chosen, uuid) in zip(self._paths, self._source.parts)
        )

    @property
    def buckets(self) -> Sequence[OpenedBucket]:
        """The buckets of the feed, with their samples; empty without buckets."""
        return tuple(OpenedBucket(*size, samples) for size, samples in zip(self._buckets, self._source.buckets))

    @property
    def uuid(self) -> Optional[str]:
        """UUID of the dataset's content, as `packimg info` shows it; None if the daemon is too old to report it."""
        return uuid_text(self._source.info["uuid"])

    @property
    def classes(self) -> int:
        """Classes of the dataset; their names are in dataset()."""
        return self._source.info["classes"]

    @property
    def slots(self) -> int:
        """Number of batches that may be held at a time, including those in asynchronous copies."""
        return self._source.info["slots"]

    @property
    def held(self) -> int:
        """Number of batches in use: those that exist themselves, or through an array or tensor made from them."""
        return self._source.held

    @property
    def socket(self) -> Optional[str]:
        """Socket of the daemon in use."""
        return self._source.address

    @property
    def daemon(self) -> Optional[Daemon]:
        """The private daemon in use; None if the daemon is not private to this process."""
        return self._source.daemon

    @property
    def reconnects(self) -> int:
        """Number of times that the feed was reopened because its daemon went away."""
        return self._source.reconnects

    @property
    def position(self) -> Tuple[int, int]:
        """(epoch, batch) at which a loop that continues here would begin."""
        return self._source.position if self._pending is None else self._pending

    def fileno(self) -> int:
        """File descriptor for event loops: readable when next(timeout=0) should be tried again after FeedTimeout."""
        return self._source.fileno()

    def state_dict(self) -> Dict[str, Any]:
        """Returns the position after the last batch returned, and the options that it depends on."""
        if self._wanted:
            refuse("state_dict", self._wanted)
        if not self._decided and self._source.is_ours:
            self._stand_at(None)
        epoch, batch = self.position
        kept = ("pipeline", "batch_size", "shuffle", "seed", "world", "repeats")
        options: Mapping[str, Any] = self._options
        return {
            "epoch": epoch, "batch": batch, "uuid": self.uuid, "dataset": self._path, **{key: options[key] for key in kept},
            "drop_last": options["last"] == LAST["drop"], "order": self._described(),
        }  # fmt: skip

    def _described(self) -> Optional[Dict[str, Any]]:
        """Returns the order as the state keeps it."""
        if self._order is None:
            return None
        info = self._source.info
        return {**self._order.described, "epoch_samples": info["epoch_samples"], "hash": f"{info['order_hash']:016x}"}

    @property
    def _path(self) -> str:
        return " + ".join(self._paths)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Continues exactly where state_dict() was called, also with another batch size or number of ranks.

        Order and augmentation depend on shuffle, seed, repeats, and the parts with what is chosen of them, so these must be the same. So must the dataset's content; its path may
        differ. strict=False allows another dataset, which then gives different batches.
        """
        if self._wanted:
            refuse("load_state_dict", self._wanted)
        if strict:
            self._check_dataset(state)
        given = {"repeats": 1, **state}  # older versions saved no repeats
        for key, own in (("shuffle", self._options["shuffle"]), ("seed", self._options["seed"]), ("repeats", self._options["repeats"])):
            if given[key] != own:
                raise BadOption(
                    f"{key}: the state was saved with {given[key]!r}, but this feed has {own!r}, which gives "
                    "different batches", 22,
                )
        if self._follows and self._source.is_ours:
            self._decided = False
            self._follow()
        self._take_blocks(state)
        self._check_order(state)
        epoch, done = state["epoch"], state["batch"] * state["batch_size"] * max(1, state["world"])
        position = epoch, self._batch_after(done)
        self._iterators += 1  # invalidates all existing iterators
        self._source.move(position)
        self._loaded, self._start = (epoch, done), self._source.position
        self._pending, self._taken, self._begun = None, None, False
        self._warn_of_uneven_ranks()
        if strict:
            self._check_dataset(state)  # the file may have been replaced since this feed was opened

    def _take_blocks(self, state: Mapping[str, Any]) -> None:
        """Takes those of the state that were not given to this feed: its dataset may be cut into other files, which suggest others."""
        own = self._order and self._order.described.get("blocks")
        saved = (state.get("order") or {}).get("blocks")
        if self._order is None or not own or not saved:
            return
        blocks = Blocks(*(given or before for given, before in zip(self._given_blocks, saved)))
        if list(blocks) != own:
            self._order = self._order.with_blocks(blocks)
            self._options["order"] = self._order.native
            self._source.move(self._source.position)

    def _check_order(self, state: Mapping[str, Any]) -> None:
        saved = state["batch_size"] * max(1, state["world"])
        if state.get("order") and self._order is not None and self._order.needs_batch and saved != self._step():
            raise BadOption(
                f"batch_size: the state was saved with {saved} samples per batch over all ranks, and this feed has {self._step()}; this order "
                "depends on it, so that batch_size times world must stay the same", 22,
            )  # fmt: skip
        compare(state.get("order"), self._described())

    def _batch_after(self, done: int) -> int:
        """Returns the number of the batch that follows `done` samples of all ranks."""
        step = self._step()
        if done % step != 0:
            raise BadOption(
                f"batch_size: the state was saved after {done} samples of the epoch, which is not a whole number of steps "
                f"of {step} samples (batch_size times world)", 22,
            )
        return done // step

    def _check_dataset(self, state: Mapping[str, Any]) -> None:
        """Compares the datasets' UUIDs; passes if either is unknown."""
        saved = state.get("uuid")
        if None not in (saved, self.uuid) and saved != self.uuid:
            raise BadOption(
                f"dataset: the state was saved with {state['dataset']}, {saved}; but this feed reads {self._path}, "
                f"{self.uuid}, which gives different batches. strict=False continues anyway", 22,
            )

    def pin(self) -> None:
        """Registers the feed's memory with CUDA, so that Batch.to("cuda") copies by DMA.

        With writable=True, .to(..., non_blocking=True) of tensors from Batch.torch() does so too.
        """
        self._source.pin()

    def close(self) -> None:
        """Closes the connection: the daemon frees its resources at once. Existing batches, arrays and tensors stay valid."""
        self._source.close()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"a Feed cannot be pickled; open it in the process that reads from it. {NO_DATALOADER}")

    def __repr__(self) -> str:
        closed = ", closed" if self._source.closed else ""
        place = f"{self._left} batches wanted" if self._wanted else f"position {self.position}"
        return f"<loaderd.Feed {self._path} at {self._source.address}, {place}{closed}>"
