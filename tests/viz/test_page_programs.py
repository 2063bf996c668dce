"""The page with programs of its own: loops whose bodies open, passes that change much."""

import re

import dpexec as fluid
from dpexec import viz
from dpexec.engine.trace import Event, Trace
from tests.viz.browser import drawn, hovered, search, tabs
from tests.viz.graphs import Graph, mlp
from tests.viz.traces import straggling


def test_passes_draw_what_changed_and_equal_changes_once(window, tmp_path):
    strategy = fluid.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        hidden = fluid.layers.data("x", [8])
        for _ in range(30):
            hidden = fluid.layers.fc(hidden, 8, act="relu")
        fluid.layers.mean(hidden)
    view = viz.passes(main, strategy=strategy, devices=1)
    window.open(view.save(tmp_path / "passes.html"))
    said = "document.querySelector('.passes .summary').textContent"
    window.wait(f"{said}.includes('+30 added, −60 removed; ')")
    kinds = int(re.search(r"removed; (\d+) different", window.text(".passes .summary"))[1])
    assert 1 <= kinds <= 6  # the first and the last ones have other neighbours
    window.click_on(".passes .tools input[type=checkbox]")  # all operators
    window.wait(f"{said}.includes('−60 removed; drawn in ')")
    assert window.log() == []


def test_few_operators_that_do_not_fit_are_not_folded_but_changes_drawn(window, tmp_path):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.layers.data("x", [8])
        total = fluid.layers.elementwise_add(x, fluid.layers.fc(x, 8))
        both = fluid.layers.tanh(fluid.layers.elementwise_add(fluid.layers.relu(total), total))
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(both, 1, act="relu")))
    strategy = fluid.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    window.open(viz.passes(main, strategy=strategy, devices=2).save(tmp_path / "few.html"))
    said = "document.querySelector('.passes .summary').textContent"
    window.wait(f"{said}.endsWith('+4 added, −8 removed; 4 different changes, each drawn once')")
    assert "Not fused: elementwise_add and relu, as" in window.text(".passes .details")


def test_all_operators_of_many_fold_until_they_can_be_read(window, tmp_path):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        hidden = fluid.layers.data("x", [8])
        for _ in range(200):
            hidden = fluid.layers.fc(hidden, 8, act="relu")
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(hidden))
    strategy = fluid.BuildStrategy()
    strategy.fuse_all_reduce_ops = strategy.fuse_elewise_add_act_ops = True
    page = viz.passes(main, strategy=strategy, devices=2).save(tmp_path / "passes.html")
    window.open(page)
    said = "document.querySelector('.passes .summary').textContent"
    boxes = f"Number({said}.match(/drawn in (\\d+) boxes/)?.[1] ?? 0)"
    window.click_on(".passes .tools input[type=checkbox]")
    first = window.wait(boxes)
    assert 5 <= first <= 100
    window.wait("location.hash.includes('at=')")
    scale = float(
        re.split(r"%2C|,", re.search(r"at=([^&]*)", window.js("return location.hash"))[1])[-1]
    )
    assert scale * 12 >= 8  # pixels of a label
    assert hovered(window, "removed", ".passes .canvas")  # counts what a box hides
    window.js("document.querySelector('.passes .details .link').click()")  # opens what is around
    more = window.wait(f"{boxes} > {first} && {boxes}")
    assert "by fuse_" in window.text(".passes .details")
    names = window.js("return [...document.querySelectorAll('.passes .stage')].length")
    for _ in range(names - 1):  # boxes keep their places from pass to pass
        window.press(".passes .stages", "\ue015")
        assert window.js(f"return {boxes}") == more
    window.press(".passes .stages", "\ue010")  # the last pass, which the address says
    window.wait(f"new RegExp('pass={names - 1}(&|$)').test(location.hash)")
    address = window.js("return location.href")
    window.go("about:blank")
    window.go(address)
    window.wait(f"document.documentElement.dataset.ready && {boxes} === {more}")
    assert window.log() == []


def test_passes_open_where_something_changed_and_draw_no_copies(window, tmp_path):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        hidden = fluid.layers.data("x", [8])
        for _ in range(12):
            hidden = fluid.layers.fc(hidden, 8, act="relu")
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(hidden))
    strategy = fluid.BuildStrategy()
    strategy.fuse_all_reduce_ops = True
    window.open(viz.passes(main, strategy=strategy, devices=2).save(tmp_path / "passes.html"))
    said = "document.querySelector('.passes .summary').textContent"
    window.wait(f"{said}.startsWith('After fuse_all_reduce_ops: ')")
    window.button("◂ Before")
    window.wait(f"{said}.startsWith('After replication: ')")
    assert window.js(f"return {said}").endswith("copies on other devices not drawn")
    assert window.log() == []


def test_a_network_that_does_not_fit_opens_with_equal_devices_as_one(window, tmp_path):
    graph = Graph()
    for device in (0, 1):
        names = ("mul", "conv2d", "pool2d", "softmax", "tanh", "sigmoid")
        made = [f"what_{name}_makes.tmp_0" for name in names]
        for name, out in zip(names, made, strict=True):  # twelve are wider than the window
            graph.add(name, "forward", device, ["x"], [out])
        graph.add("sum", "forward", device, made, ["sum_0.tmp_0"])
    page = viz.draw(graph.data()).save(tmp_path / "graph.html")
    said = "document.querySelector('.graph .summary').textContent"
    joined = "document.querySelector('.graph input[type=checkbox]').checked"
    assert window.open(page).wait(said) == "14 operators in 7 boxes; folded: 2 equal devices as 1."
    assert window.js(f"return {joined}")
    window.js("document.querySelector('.graph input[type=checkbox]').click()")
    window.wait(f"{said}.startsWith('All 14 operators')")
    window.js("return new Promise(done => setTimeout(done, 250))")  # the address waits for rest
    link = window.js("return location.href")
    window.go("about:blank")
    window.go(link)
    window.wait("document.documentElement.dataset.ready")
    window.wait(f"{said}.startsWith('All 14 operators') && !{joined}")
    # somebody who asks for lanes gets them: one device fills the window, and one lies beside it
    page = viz.draw(graph.data(), replicas="lanes").save(tmp_path / "lanes.html")
    assert window.open(page).wait(said) == "All 14 operators shown, nothing folded."
    assert not window.js(f"return {joined}")
    assert window.log() == []


def test_passes_show_code_before_and_after(window, tmp_path):
    strategy = fluid.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.layers.data("x", [8])
        fluid.layers.mean(fluid.layers.fc(x, 8, act="relu"))
    view = viz.passes(main, strategy=strategy, devices=1)
    window.open(view.save(tmp_path / "passes.html"))
    window.button("+ fused_elemwise_activation")
    shown = window.text(".passes .details, .details")
    assert "fluid.layers.mean(fluid.layers.fc(x, 8" in shown  # the user's line
    assert re.search(r"Before(: \d kernels)? of 2 operators", shown)
    assert re.search(r"After(: \d kernel)? of 1 operator", shown)
    assert "relu is declared in relu.relu" in shown and "xp.maximum(x, 0)" in shown
    window.button("relu", ".details")
    assert "− removed by fuse_elewise_add_act_ops" in window.text(".details")
    assert window.log() == []


def test_the_body_of_a_loop_opens_in_place(window, tmp_path):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        count = fluid.layers.fill_constant([1], "int64", 0)
        limit = fluid.layers.fill_constant([1], "int64", 3)
        going = fluid.layers.less_than(count, limit)
        loop = fluid.layers.While(going)
        with loop.block():
            fluid.layers.increment(count)
            fluid.layers.less_than(count, limit, cond=going)
    window.open(viz.draw(main).save(tmp_path / "loop.html"))
    said = "document.querySelector('.graph .summary').textContent"
    window.wait(f"{said}.includes('6 operators, 2 of them in loops')")
    assert search(window, "increment")[0] == 1
    window.js("document.querySelector('.graph [role=option]').click()")
    window.wait(f"{said}.startsWith('All 6 operators')")
    shown = window.text(".graph .details")
    assert "run bywhile" in shown and "test_page_programs.py:" in shown
    assert window.log() == []


def test_equal_layers_fold_in_the_timeline(window, tmp_path):
    """Of 150 layers no operator could be seen: they fold; what is searched opens."""
    data = mlp(devices=2, layers=150).data()
    ops = [node for node in data["nodes"] if node["device"] == 0]
    events = [
        Event(n["name"], "op", 0, f"op-{n['id']}", i * 1e-6, (i + 1) * 1e-6, 0, {}, n["id"])
        for i, n in enumerate(ops)
    ]
    window.open(viz.timeline(Trace(tuple(events), {}, data)).save(tmp_path / "layers.html"))
    chosen = "[...document.querySelectorAll('.timeline select')].at(-1)"
    assert window.js(f"return {chosen}.value") == "blocks"
    heights = "document.querySelector('.timeline .moving .bar').offsetHeight"
    folded = window.js(f"return {heights}")
    at = hovered(window, "fc 1 to 20", ".timeline .canvas") or hovered(
        window, " × ", ".timeline .canvas"
    )
    window.click(*at)
    said = window.text(".timeline .details")
    assert "at work" in said and "By operator" in said
    search(window, "relu_grad", ".timeline")
    window.js("document.querySelector('.timeline [role=option]').click()")
    assert window.text(".timeline .details h2") == "relu_grad"
    window.js(f"const s = {chosen}; s.value = ''; s.dispatchEvent(new Event('change'))")
    assert window.js(f"return {heights}") < folded  # operators alone: a single row
    assert window.log() == []


def test_loops_in_loops_open_in_place_with_a_slider_each(window, tmp_path):
    layers = fluid.layers
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        total = layers.fill_constant([2, 2], "float32", 1.0)
        numbers = [layers.fill_constant([1], "int64", value) for value in (0, 3, 2)]
        count, limit, least = numbers
        going = layers.less_than(count, limit)
        outer = layers.While(going)
        with outer.block():
            at = layers.fill_constant([1], "int64", 0)
            more = layers.less_than(at, least)
            inner = layers.While(more)
            with inner.block():
                layers.assign(layers.relu(total), total)
                layers.increment(at)
                layers.less_than(at, least, cond=more)
            few = layers.less_than(count, least)
            layers.cond(few, lambda: layers.tanh(total), lambda: layers.sigmoid(total))
            layers.increment(count)
            layers.less_than(count, limit, cond=going)
    execution = fluid.ExecutionStrategy()
    execution.trace = True
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        exec_strategy=execution, places=[fluid.CPUPlace()]
    )
    for _ in range(2):
        fluid.Executor().run(compiled, fetch_list=[total])
    window.open(viz.report(compiled).save(tmp_path / "nested.html"))
    window.tab(tabs(window)[1])
    window.wait("document.querySelector('.graph .canvas > canvas').width > 300")

    def choose(name):
        assert search(window, name)[0] >= 1
        window.js("document.querySelector('.graph [role=option]').click()")
        heads = "[...document.querySelectorAll('.graph .details output')].map(e => e.textContent)"
        window.wait(f"document.querySelector('.graph .details h2').textContent === '{name}'")
        return [text.partition(":")[0] for text in window.js(f"return {heads}")][-2:]

    assert choose("relu") == ["1 of 3", "1 of 2"]
    assert choose("sigmoid")[-1] == "1 of 3"  # a block of cond makes one round
    assert "not run" in window.js(
        "return document.querySelector('.graph [role=option] .more').textContent"
    )
    slider = "const s = document.querySelector('.graph .details [aria-label=\"Round of while\"]');"
    window.js(f"{slider} s.value = 3; for (const e of ['input', 'change'])"
              "s.dispatchEvent(new Event(e))")  # fmt: skip
    search(window, "sigmoid")
    assert "round 1: " in window.js(
        "return document.querySelector('.graph [role=option] .more').textContent"
    )
    assert window.log() == []


def test_the_playhead_shows_the_same_wherever_it_comes_from(window, tmp_path):
    """Going on changes what happened since; going back begins anew: the pictures are equal."""
    data = mlp(devices=2, layers=3).data()
    events = [
        Event(n["name"], "op", 0, f"op-{n['id']}", i * 1e-3, (i + 2.5) * 1e-3, i % 3, {}, n["id"])
        for i, n in enumerate(data["nodes"])
        if n["device"] == 0
    ]
    run = Trace(tuple(events), {}, data)
    report = viz.Report("moments", [viz.draw(data, fold="none"), viz.timeline(run)])
    window.open(report.save(tmp_path / "moments.html"))
    window.wait("document.querySelector('.graph .canvas > canvas').width > 300")
    seek = (
        "const s = document.querySelector('.play-bar input'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input'))"
    )

    def picture(*places):
        for place in places:
            window.js(seek, place)
            drawn(window)
        return window.js("return document.querySelector('.graph .canvas > canvas').toDataURL()")

    on = picture(0, 120, 300, 301, 520)
    assert on != picture(900)
    assert picture(520) == on
    assert picture(80, 521, 520) == on
    assert window.log() == []


def test_many_devices_in_reduce_mode_open_as_high_as_the_window(window, tmp_path):
    """Every device has a lane for what it sums up, so most lanes are beside the window."""
    made = mlp(devices=8, layers=4, reduce=True)
    window.open(viz.draw(made.data()).save(tmp_path / "reduce.html"))
    said = window.text(".graph .summary")
    assert "equal operators of 8 devices as one" in said and "nothing folded" not in said


def test_programs_in_turn_are_tabs_with_tabs_and_selections_of_their_own(window, tmp_path):
    page = viz.report({"one": straggling(3), "other": straggling(2)}, tmp_path / "both.html")
    window.open(tmp_path / "both.html")
    assert page.title == "dpexec run · 2 programs in turn"
    assert tabs(window)[:3] == ["In turn", "one", "other"]
    window.js("document.querySelectorAll('header [role=tab]')[2].click()")
    inner = "document.querySelectorAll('.body.run:not([hidden]) .run > .tabs [role=tab]')"
    names = window.js(f"return [...{inner}].map(tab => tab.textContent)")
    assert names == ["Where the time goes", "hand-made", "Timeline", "Time by type"]
    window.js(f"{inner}[1].click()")
    window.wait("document.querySelector('.graph canvas')?.width > 300")
    window.js("document.querySelector('.graph [role=option]').click()")
    window.wait("location.hash.includes('2.nodes=') && location.hash.includes('2.view=1')")
    window.js("document.querySelectorAll('header [role=tab]')[1].click()")
    assert window.js("return document.querySelectorAll('.run > .tabs').length") == 2
    window.wait("location.hash.includes('view=1&') && !location.hash.includes('1.nodes=')")
    window.js("location.reload()")
    window.wait("document.documentElement.dataset.ready")
    window.js("document.querySelectorAll('header [role=tab]')[2].click()")
    assert window.text(".body.run:not([hidden]) .tabs [aria-selected=true]") == "hand-made"
    assert window.log() == []
