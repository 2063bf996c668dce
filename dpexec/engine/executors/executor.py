"""``Executor``: runs a program operator after operator, or a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.places import CPUPlace, CUDAPlace, Place, is_compiled_with_cuda
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.executors.collection_runs import Epochs, run_epochs
from dpexec.engine.executors.compiled_program import CompiledProgram, annotated, meant
from dpexec.engine.executors.dataset_runs import Dataset, Feed, FetchHandler, run_dataset, watchers
from dpexec.engine.executors.delayed_steps import Delaying
from dpexec.engine.executors.steps import ProgramSteps
from dpexec.engine.executors.variants import AS_IT_IS, Pruning, Variant, fed_levels, needed_feeds
from dpexec.engine.feeds.partition_stream import PartitionStream
from dpexec.engine.feeds.partitions import partitions_of
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.program import Program, default_main_program
from dpexec.engine.ir.variable import Variable
from dpexec.engine.parameter_server.client import Servers
from dpexec.engine.parameter_server.remote import remote_of
from dpexec.engine.parameter_server.server import serve
from dpexec.engine.run.fetch import as_arrays, as_tensors, fetch_names, wanted
from dpexec.engine.run.trainers.rings import set_up_rings
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy

__all__ = ["Executor"]


class Executor(Delaying):
    """Runs programs on one device, and compiled programs on theirs.

    Args:
        place: the device; None takes the first GPU if there is one, else the CPU.

    Raises:
        TypeError: the argument is no place.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.data("x", [None, 2]) * 2.0
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> exe.run(main, feed={"x": np.ones((1, 2), "float32")}, fetch_list=[y])
        [array([[2., 2.]], dtype=float32)]
    """

    def __init__(self, place: Place | None = None) -> None:
        if place is None:
            place = CUDAPlace(0) if is_compiled_with_cuda() else CPUPlace()
        if not isinstance(place, Place):
            raise TypeError(f"Executor takes a place such as CPUPlace(), but received {place!r}")
        self.place = place
        self._closed = False
        self._engines: LimitedCache[Any, Engine] = LimitedCache(limit_of("engines of programs"))
        self._servers: set[Servers] = set()
        self._compiled: WeakSet[Engine] = WeakSet()

    def run(
        self,
        program: Program | CompiledProgram | None = None,
        feed: Any = None,
        fetch_list: Any = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> list[Any]:
        """Run a program once.

        Args:
            program: None takes the default main program.
            feed: arrays by name; for several devices also a list with a dict for each. Variables of
                a DataLoader of the program may be missing. Dask collections are computed; a Dask
                array or dataframe with as many blocks of rows as there are devices is split at its
                blocks.
            fetch_list: variables or names to return. If it contains operators of an optimizer (or
                the result of ``minimize``), only operators that these and the fetches need are run.
            feed_var_name, fetch_var_name, use_program_cache: accepted for fluid's sake.
            scope: where variables live; None takes the global scope.
            return_numpy: True returns arrays, False returns LoDTensors. LoDTensors of GPUs and
                clusters are returned at once, and reading one waits for its value; an error on a
                cluster is raised then, or by the next run.
            return_merged: concatenate the devices' values along axis 0; False returns a list of
                values per name.
            use_prune: run only operators that the fetches and the parameter updates need, and none
                that compute variables that are fed.

        Returns:
            One array (or list, or LoDTensor) per fetched name.

        Raises:
            RuntimeError: the executor was closed.
            TypeError: not a program or scope, or a feed or fetch of a wrong type.
            ValueError: a feed of a wrong shape or element type.
            EOFException: a DataLoader of the program has no more data.
            EnforceNotMet: an operator cannot work on its inputs; no variable has changed.
        """
        program, scope = meant(program, scope, self)
        for name, kind, value in (
            ("feed_var_name", str, feed_var_name),
            ("fetch_var_name", str, fetch_var_name),
            ("return_merged", int, return_merged),
        ):
            if not isinstance(value, kind):
                wanted = "bool" if kind is int else "string"
                raise TypeError(f"{name} of Executor.run must be a {wanted}, not {value!r:.80}")
        with annotated(program):
            results = self._run(
                program, feed, fetch_list, scope, return_numpy, return_merged, use_prune
            )
        return as_arrays(results) if return_numpy else as_tensors(results)

    def _run(
        self,
        program: Program | CompiledProgram,
        feed: Any,
        fetch_list: Any,
        scope: Scope,
        return_numpy: bool,
        return_merged: bool,
        use_prune: bool,
    ) -> list[Any]:
        compiled = program if isinstance(program, CompiledProgram) else None
        original = program._original if isinstance(program, CompiledProgram) else program
        names, updates = wanted(fetch_list)
        pruning = Pruning.to(feed, names, updates) if use_prune or updates else None
        remote = remote_of(original) if compiled is None else compiled._remote
        if compiled is None and remote is not None and remote.serves:
            serve(original, scope, self.place)
            return []
        known = original.blocks[0].vars
        engine = self.usual_engine(program, known, feed, scope) if pruning is None else None
        if engine is None:
            engine = self._engine_of(program, original, feed, scope, pruning)
        if pruning is not None:
            feed = needed_feeds(original, engine.program, feed)
        source = original if compiled is None else engine.program
        merged = return_merged or compiled is None or not compiled._is_data_parallel
        found = engine.repeated.run(source, feed, names, merged) if remote is None else None
        if found is not None:
            return found
        batches = engine.batches(source, feed)
        if return_numpy and engine.shows_sequences:
            engine.offsets.refuse(batches, names)
        if remote is None:
            return engine.run(batches, names, merged, wait=return_numpy)
        self._servers.add(remote.servers)
        return remote.run(engine, batches, names, merged)

    def usual_engine(
        self,
        program: Program | CompiledProgram,
        known: Mapping[str, Variable],
        feed: Any,
        scope: Scope,
    ) -> Engine | None:
        """The engine of an earlier run, if this run surely needs the same form; most do.

        Nothing but sequences, fed or in the scope, changes the form of a program: if they have
        other levels than the variables, which are ``known``, declare.
        """
        if type(feed) is not dict:
            return None
        for name, value in feed.items():
            if type(value) is np.ndarray:
                continue
            if type(value) is not LoDTensor:
                return None
            if value._lod and name in known and known[name].lod_level != len(value._lod):
                return None
        if isinstance(program, CompiledProgram):
            engine = program._usual_engine(scope, self.place)
            if engine is not None:
                self._compiled.add(engine)
        elif program.blocks[0].ops:
            engine = self._engines.used((program, scope, AS_IT_IS))
            if engine is not None and engine.version != program._version:
                return None
        else:
            return None  # it is warned of
        lacks = engine is not None and engine.may_lack and Variant.lacking(engine.label, feed)
        return None if engine is None or engine.keeps_sequences or lacks else engine

    def _engine_of(
        self,
        program: Program | CompiledProgram,
        original: Program,
        feed: Any,
        scope: Scope,
        pruning: Pruning | None,
    ) -> Engine:
        """The engine of a program in the form that a run needs."""
        variant = Variant(pruning, fed_levels(original, feed, scope))
        if isinstance(program, CompiledProgram):
            engine = program._compile(scope, self.place, variant)
            self._compiled.add(engine)
            return engine
        if not original.global_block().ops:
            warn("The current program is empty.")
        return self._engine_for(original, scope, variant)

    def _engine_for(self, program: Program, scope: Scope, variant: Variant = AS_IT_IS) -> Engine:
        key = (program, scope, variant)
        engine = self._engines.used(key)
        if engine is None or engine.version != program._version:
            remote = remote_of(program)
            source = variant.of(program if remote is None else remote.local)
            engine = self._engines[key] = self._make_engine(source, scope, program)
        return engine

    def _make_engine(self, source: Program, scope: Scope, label: Program) -> Engine:
        set_up_rings(source, scope)
        device = [self.place]
        if label._trainer_id is None:
            return Engine(source, device, scope, label=label)
        strategy = BuildStrategy()
        strategy.num_trainers = len(label._trainers_endpoints)
        strategy.trainer_id = label._trainer_id
        execution = ExecutionStrategy()
        return Engine(source, device, scope, strategy, execution, scale_loss_grad=True, label=label)

    def train_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: Dataset | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Run a program with every batch of a data set, as :meth:`run` does with one.

        Batches run one after another, in the order of files and lines; threads read ahead. (In the
            original each thread trains on its own batches.) Several devices divide each batch.

        Args:
            program: None takes the default main program; a compiled one runs on its devices.
            dataset: a data set of :class:`dpexec.dataset.DatasetFactory`. Its variables that the
                program does not have are not fed.
            scope: where variables live; None takes the global scope.
            thread: files that are read at once; 0 takes the number of ``dataset.set_thread``.
            debug: print how many batches a second run, every ``print_period`` batches.
            fetch_list: variables that are printed.
            fetch_info: what is printed before each.
            print_period: the last of every so many batches is printed.
            fetch_handler: looks at variables from time to time.

        Raises:
            AssertionError: ``fetch_info`` is not as long as ``fetch_list``.
            RuntimeError: there is no data set, it has no threads, or nothing was loaded.
            TypeError: ``dataset`` is something else, such as a ``DataLoader``.
            EnforceNotMet: a pipe command failed, a line does not fit, or an operator cannot work on
                its inputs; earlier batches have been trained on.
            OSError: a file cannot be read.
            ValueError: the data set has no files or no variables.
        """
        watching = watchers(fetch_list, fetch_info, print_period, debug, fetch_handler)
        program = default_main_program() if program is None else program
        original = program._original if isinstance(program, CompiledProgram) else program
        known = original.global_block().vars

        def run(feed: Feed, names: list[str]) -> list[Any]:
            fed = {name: tensor for name, tensor in feed.items() if name in known}
            return self.run(program, fed, names, scope=scope, return_numpy=False)

        run_dataset(run, dataset, thread, watching)
        for engine in self._compiled:
            engine.settle()

    def infer_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: Dataset | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Run a program with every batch of a data set, and show fetched values.

        The same as :meth:`train_from_dataset`, with its arguments and errors. As in the original,
        the program runs unchanged, with its updates: pass a program without updates, such as
        ``program.clone(for_test=True)`` from before ``minimize``.
        """
        self.train_from_dataset(
            *(program, dataset, scope, thread, debug),
            *(fetch_list, fetch_info, print_period, fetch_handler),
        )

    def train_from_dask(
        self,
        program: Program | CompiledProgram | None = None,
        collection: Any = None,
        feed: Any = None,
        batch_size: int = 32,
        epochs: int | Iterable[int] = 1,
        shuffle: bool | int = False,
        seed: int = 0,
        drop_last: bool = False,
        scope: Scope | None = None,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
        progress: bool = False,
        after_epoch: Callable[[int], object] | None = None,
    ) -> None:
        """Run a program with every batch of a Dask collection, epoch after epoch.

        A batch has the next rows in the order of the partitions, and may cross their borders;
        several devices divide it. So results depend neither on where partitions lie nor on the
        number of workers. On threads, partitions are computed one after another, the next one
        ahead. On a cluster partitions are computed on the workers, and rows go from there to the
        replicas. Rows are converted to the type that a variable declares: floats are rounded, and
        values that do not fit are an error. Each epoch computes the partitions again: ``persist()``
        a collection that is expensive to compute, if it fits into memory.

        Args:
            program: None takes the default main program; a compiled one runs on its devices.
            collection: a Dask dataframe, array, bag or Delayed; a list of Delayed, a partition
                each; or several of these with the same partitions, by the names of variables.
                Elements of bags, and Delayed, are arrays, tuples of arrays in the order of
                ``feed``, or dicts of arrays by name.
            feed: variables; None takes all data variables of the program. For a dataframe: a dict
                of columns by variable (also if Delayed give dataframes), or variables: each gets
                the column of its name; variables without such a column share the remaining columns
                in order, one for each element of a row.
            batch_size: rows of a batch, of all devices together.
            epochs: number of epochs; or their numbers, such as ``range(3, 10)`` to continue after
                three.
            shuffle: mix the rows of so many partitions, which are drawn at random; True mixes all.
                The order depends on seed, number of the epoch, and partitions.
            seed: seed of the order.
            drop_last: leave out the last batch of an epoch if it is smaller.
            scope: where variables live; None takes the global scope.
            debug: print how many batches a second run, every ``print_period`` batches.
            fetch_list: variables that are printed.
            fetch_info: what is printed before each; None: their names.
            print_period: the last of every so many batches is printed.
            fetch_handler: looks at variables from time to time.
            progress: show a progress bar.
            after_epoch: called with the number of every epoch that has ended.

        Raises:
            TypeError: ``collection`` is no collection, or a column holds no numbers.
            ValueError: columns, partitions or numbers do not fit the variables.
            EnforceNotMet: there are no rows, or an operator cannot work on its inputs.
            ClusterError: workers were lost that cannot be replaced.
        """
        names = fetch_names(fetch_list)
        infos = names if fetch_info is None else fetch_info
        watching = watchers(names, infos, print_period, debug, fetch_handler)
        program, scope = meant(program, scope, self)
        original = program._original if isinstance(program, CompiledProgram) else program
        parts = partitions_of(original.global_block(), collection, feed)
        remote = remote_of(original)
        if remote is not None:
            self._servers.add(remote.servers)
        mixed = len(parts) if shuffle is True else int(shuffle)
        period = print_period if names or debug else 0
        how = Epochs(epochs, batch_size, drop_last, period, progress, after_epoch)
        with annotated(program):
            engine = self._engine_of(program, original, None, scope, None)
            stream = PartitionStream(parts, mixed, seed, engine.contact)
            run_epochs(ProgramSteps(engine, remote), stream, how, watching)

    def close(self) -> None:
        """Release the executor's memory, here and on workers; it cannot run any more.

        Variables keep their values. Parameter servers learn that this trainer is done.

        Raises:
            ClusterError: values were on a cluster that has failed.
        """
        self._closed = True
        for servers in self._servers:
            servers.complete()
        for engine in self._compiled:
            engine.close()
        for held in (self._servers, self._engines, self._compiled):
            held.clear()
