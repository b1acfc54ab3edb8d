import dataclasses
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from lnstesting import exactly
from matplotlib import pyplot
from matplotlib.figure import Figure

from xlnstorch import Exact, lns8, plot
from xlnstorch.plot.figures import require_matplotlib

DRAWINGS = {
    "spacing": (plot.draw_spacing, lambda: plot.spacing(["lns8", "lns12"], beside=["bfloat16", "float16"])),
    "error map": (plot.draw_error_map, lambda: plot.error_map("lns8", "mul", interval=(0.005, 200), points=40)),
    "staircase": (plot.draw_staircase, lambda: plot.staircase("lns8")),
    "histogram": (plot.draw_number_histogram, lambda: plot.number_histogram(["lns8", "lns12"])),
    "rounding": (plot.draw_rounding_errors, lambda: plot.rounding_errors(["lns8"], beside="float16", samples=300)),
    "sweep": (
        plot.draw_precision_sweep,
        lambda: plot.precision_sweep("mul", ["lns8", "lns12"], frac_bits=[3, 4, 5], samples=40, beside="bfloat16"),
    ),
}


@pytest.fixture(autouse=True)
def _without_a_display():
    matplotlib.use("Agg")
    yield
    pyplot.close("all")


@pytest.fixture
def ax():
    return Figure().subplots()


def lines(ax):
    return {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_labelled_and_on_the_axes_that_were_given(name, ax):
    draw, data = DRAWINGS[name]
    assert draw(data(), ax) is ax
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert ax.get_title()
    ax.figure.savefig("/dev/null", format="png")


@pytest.mark.parametrize("name", DRAWINGS)
def test_without_axes_they_are_made_for_pyplot_to_show(name):
    draw, data = DRAWINGS[name]
    assert draw(data()).figure is pyplot.figure(pyplot.get_fignums()[-1])


def test_spacing_shows_the_data_steps_as_steps(ax):
    data = plot.spacing("lns8", beside="float16", interval=(1.0, 8.0))
    plot.draw_spacing(data, ax)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    shown = lines(ax)
    assert list(shown) == legend(ax) == ["lns8", "float16"]
    assert np.array_equal(shown["lns8"].get_ydata(), data.lines[0].spacing)
    assert shown["float16"].get_xdata().tolist() == [1, 2, 2, 4, 4, 8, 8]
    assert shown["float16"].get_ydata().tolist() == [2**-10, 2**-10, 2**-9, 2**-9, 2**-8, 2**-8, 2**-7]


def test_relative_spacing_is_level_in_lns_and_a_sawtooth_in_floating_point(ax):
    plot.draw_spacing(plot.spacing("lns8", beside="float16", interval=(1.0, 4.0)), ax, relative=True)
    shown = lines(ax)
    assert np.allclose(shown["lns8"].get_ydata(), 2 ** (1 / 8) - 1, rtol=1e-14)
    assert shown["float16"].get_ydata().tolist() == [2**-10, 2**-11, 2**-10, 2**-11, 2**-10]
    assert "/ magnitude" in ax.get_ylabel()


def test_an_error_map_shows_each_error_at_its_operands_and_greys_what_is_out_of_range(ax):
    data = plot.error_map("lns8", "div", interval=(0.005, 200), points=20)
    plot.draw_error_map(data, ax)
    (mesh,) = ax.collections
    assert mesh.get_rasterized()
    shown = mesh.get_array().reshape(len(data.b), len(data.a))
    assert np.array_equal(shown.mask, np.isnan(data.error.T))
    assert np.array_equal(shown.filled(0.0), np.nan_to_num(data.error.T))
    corners = mesh.get_coordinates()
    for axis, magnitudes, edges in ((0, data.a, corners[0, :, 0]), (1, data.b, corners[:, 0, 1])):
        assert (edges[:-1] < magnitudes).all(), axis
        assert (magnitudes < edges[1:]).all(), axis
    assert ax.get_title() == "Error of a ÷ b in lns8\nexact adder, at most 0 units; grey: out of range"
    assert mesh.get_clim() == (-0.5, 0.5)
    assert matplotlib.colors.to_hex(mesh.get_cmap().get_bad()) == "#bdbdbd"


@dataclasses.dataclass(frozen=True)
class Planted(Exact):
    by: int = 0

    def gaussian(self, format, d, subtract):
        return super().gaussian(format, d, subtract) + self.by * (d == 5)


def test_the_colours_reach_to_the_largest_finite_error_and_say_if_some_are_beyond(ax):
    data = plot.error_map(dataclasses.replace(lns8, adder=Planted(by=2)))
    plot.draw_error_map(data, ax)
    limit = float(np.abs(data.error).max())
    assert limit > 1.5
    assert ax.collections[0].get_clim() == (-limit, limit)
    assert "planted:by=2 adder" in ax.get_title()
    other = Figure().subplots()
    plot.draw_error_map(plot.error_map(dataclasses.replace(lns8, adder=Planted(by=-1000))), other)
    assert other.collections[0].get_clim() == (-0.5, 0.5)
    assert "at most inf units" in other.get_title()
    assert other.collections[0].get_array().mask.sum() == 0
    assert other.collections[0].colorbar.extend == "both"


def test_a_negative_operand_says_so(ax):
    plot.draw_error_map(plot.error_map("lns8", signs="-+"), ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("|a|, a negative", "b")


def test_a_short_staircase_names_its_words(ax):
    data = plot.staircase("lns8", interval=(1.0, 2.0))
    plot.draw_staircase(data, ax)
    assert [text.get_text() for text in ax.texts] == [f"0x{word:02x}" for word in range(0x40, 0x49)]
    values, edges, _ = ax.patches[0].get_data()
    assert np.array_equal(values, data.stairs[0].values)
    assert np.array_equal(edges, data.stairs[0].edges)
    for crowded in (plot.staircase("lns8", interval=(1.0, 8.0)), plot.staircase(["4,1", "lns8"], interval=(1.0, 2.0))):
        other = Figure().subplots()
        plot.draw_staircase(crowded, other)
        assert not other.texts
        assert len(other.patches) == len(crowded.stairs)


def test_a_histogram_shows_the_counts(ax):
    data = plot.number_histogram(["lns8", "lns12"], scale="log", bins=10)
    plot.draw_number_histogram(data, ax)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    outlines = [patch for patch in ax.patches if not patch.get_fill()]
    assert [patch.get_data()[0].tolist() for patch in outlines] == data.counts.tolist()
    assert legend(ax) == ["lns8", "lns12"]


def test_rounding_shows_which_share_of_samples_errs_by_no_more(ax):
    data = plot.rounding_errors("lns8", samples=200)
    plot.draw_rounding_errors(data, ax)
    (line,) = ax.lines
    size = np.abs(data.errors[0])
    for x, share in zip(line.get_xdata(), line.get_ydata(), strict=True):
        assert share == (size <= x).mean()
    assert line.get_xdata()[-1] == size.max()


def test_a_sweep_shows_medians_and_the_largest(ax):
    draw, data = DRAWINGS["sweep"]
    data = data()
    draw(data, ax)
    shown = lines(ax)
    assert list(shown) == ["4 integer bits", "5 integer bits", "bfloat16, median"]
    assert np.array_equal(shown["4 integer bits"].get_ydata(), data.lines[0].median)
    assert shown["bfloat16, median"].get_ydata()[0] == data.floats[0].median[0]
    assert np.array_equal(ax.lines[1].get_ydata(), data.lines[0].largest)


def test_a_missing_matplotlib_is_said_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = "drawing needs matplotlib, which is not installed: pip install matplotlib"
    with pytest.raises(ImportError, match=exactly(message)):
        require_matplotlib()
    with pytest.raises(ImportError, match=exactly(message)):
        plot.draw_staircase(plot.staircase())


def test_importing_the_package_and_computing_do_not_import_matplotlib():
    code = "import sys, xlnstorch.plot as p; p.spacing(); p.staircase(); assert 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
