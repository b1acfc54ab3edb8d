"""Models to LNS and back: the words, what stays as it was, and what is refused with nothing changed."""

import copy
import gc
import io
import math
import warnings
import weakref

import pytest
import torch
from lnstesting import check, exactly
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from xlnstorch import LNSTensor, conversions, convert, lns8, lns12, lns16, lnstensor, to_float

HELD = (
    "{} cannot be converted while it is held elsewhere: by results whose backward pass is still to come, "
    "by a weak reference or by TorchScript"
)


def encoded(tensor, format=lns16):
    return conversions.encode(format, tensor.detach())


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


class Everything(nn.Module):
    """A model with one of each place in which PyTorch keeps tensors."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.list = nn.ParameterList([torch.randn(3), torch.randn(2)])
        self.dict = nn.ParameterDict({"scale": torch.randn(3)})
        self.frozen = nn.Parameter(torch.randn(2, dtype=torch.float16), requires_grad=False)
        self.register_buffer("kept", torch.randn(2, dtype=torch.float64))
        self.register_buffer("dropped", torch.tensor([-math.inf, 0.0]), persistent=False)
        self.register_buffer("mask", torch.tensor([True, False]))
        self.declared = nn.Buffer(torch.randn(2), persistent=False)
        self.register_parameter("nothing", None)
        self.constant = torch.ones(3)

    def forward(self, x):
        return torch.relu(self.first(x)) * self.dict["scale"] + self.list[0] + self.constant


def contents(model):
    return dict(model.named_parameters()) | dict(model.named_buffers())


def test_everything_real_is_encoded_and_the_rest_is_untouched():
    model = Everything()
    before, expected = contents(model), copy.deepcopy(contents(model))
    grads = {name: tensor.requires_grad for name, tensor in before.items()}
    names = list(model.state_dict()), [(name, type(module)) for name, module in model.named_modules()]

    assert convert(model, lns16) is model
    after = contents(model)
    assert len(after) == 15
    for name, tensor in after.items():
        assert tensor is before[name]
        assert tensor.requires_grad == grads[name] and tensor.is_leaf
        if name in ("mask", "norm.num_batches_tracked"):
            assert type(tensor) is torch.Tensor
            assert torch.equal(tensor, expected[name])
        else:
            check(tensor, lns16, encoded(expected[name]))
    assert [name for name, tensor in after.items() if isinstance(tensor, nn.Parameter)] == [
        name for name, tensor in expected.items() if isinstance(tensor, nn.Parameter)
    ]
    assert isinstance(model.declared, nn.Buffer)
    assert (list(model.state_dict()), [(name, type(module)) for name, module in model.named_modules()]) == names
    assert type(model.constant) is torch.Tensor

    model(torch.ones(2, 4)).sum().backward()
    assert isinstance(model.first.weight.grad, LNSTensor)
    assert model.frozen.grad is None


def test_the_way_back_restores_each_dtype_and_gives_the_decoded_values():
    model = convert(Everything(), lns16)
    values = {name: x.value if isinstance(x, LNSTensor) else x.clone() for name, x in contents(model).items()}
    objects, dtypes = contents(model), {name: x.dtype for name, x in contents(Everything()).items()}
    assert to_float(model) is model
    for name, tensor in contents(model).items():
        assert tensor is objects[name]
        assert tensor.dtype == dtypes[name]
        assert torch.equal(tensor, values[name].to(dtypes[name]))
        assert type(tensor) is (nn.Parameter if name in dict(model.named_parameters()) else torch.Tensor)
    assert model.frozen.dtype == torch.float16 and not model.frozen.requires_grad
    assert vars(model.first.weight) == {}
    model(torch.ones(2, 4)).sum().backward()
    assert type(model.first.weight.grad) is torch.Tensor
    to_float(model)  # nothing left to do
    assert model.first.weight is objects["first.weight"]


def test_the_former_dtype_survives_a_change_of_format_and_a_copy_and_can_be_overruled():
    model = copy.deepcopy(convert(convert(nn.Linear(2, 2, dtype=torch.bfloat16), lns16), lns12))
    assert model.weight.format == lns12
    assert to_float(copy.deepcopy(model)).weight.dtype == torch.bfloat16
    assert to_float(model, torch.float64).weight.dtype == torch.float64


def test_a_parameter_made_in_lns_becomes_one_of_the_default_dtype():
    model = nn.Linear(2, 1, bias=False)
    model.weight = nn.Parameter(lnstensor([[1.0, -2.0]], format=lns16))
    assert to_float(convert(model, lns12)).weight.dtype == torch.float32
    assert model.weight.tolist() == [[1.0, -2.0]]


def test_the_same_format_again_changes_nothing_and_another_converts():
    model = convert(nn.Linear(3, 2), lns16)
    weight, words = model.weight, model.weight._words
    convert(model, lns16)
    assert model.weight is weight and weight._words is words
    convert(model, lns8)
    check(weight, lns8, conversions.rescale(lns16, words, lns8))


def test_the_original_is_kept_by_a_deepcopy():
    model = nn.Linear(3, 2)
    converted = convert(copy.deepcopy(model), lns16)
    assert type(model.weight) is nn.Parameter
    check(converted.weight, lns16, encoded(model.weight))


def test_tied_parameters_stay_tied():
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    model.table = [model[0].weight]  # what torch does not know of
    shared = torch.randn(2)
    model[0].register_buffer("a", shared)
    model[1].register_buffer("b", shared)
    for change in (lambda: convert(model, lns16), lambda: to_float(model)):
        change()
        assert model[1].weight is model[0].weight is model.table[0]
        assert model[0].a is model[1].b is shared
    assert len(list(model.parameters())) == 1


def test_gradients_are_converted_too():
    model = nn.Linear(3, 1)
    loss = model(torch.tensor([[0.3, -1.7, 0.0]])).sum()
    loss.backward()  # and what it ran through is still alive
    grad = model.weight.grad.clone()
    convert(model, lns16)
    check(model.weight.grad, lns16, encoded(grad))
    convert(model, lns8)
    assert model.weight.grad.format == lns8
    to_float(model)
    assert model.weight.grad.dtype == torch.float32
    assert torch.allclose(model.weight.grad, grad, rtol=0.1)


def test_hooks_and_attributes_stay():
    model, calls = nn.Linear(2, 1), []
    model.register_forward_hook(lambda *_: calls.append("module"))
    handle = model.weight.register_hook(lambda grad: calls.append(type(grad)))
    model.weight.register_post_accumulate_grad_hook(lambda tensor: calls.append("accumulated"))
    model.weight.group = "decayed"
    convert(model, lns16)
    model(torch.ones(1, 2)).sum().backward()
    assert calls == ["module", LNSTensor, "accumulated"]
    assert model.weight.group == "decayed"
    handle.remove()
    calls.clear()
    to_float(model)
    assert model.weight.group == "decayed"
    model(torch.ones(1, 2)).sum().backward()
    assert calls == ["module", "accumulated"]


def test_parametrized_modules():
    model = parametrizations.weight_norm(nn.Linear(3, 2))
    convert(model, lns16)
    assert parametrize.is_parametrized(model, "weight")
    assert {name for name, x in model.named_parameters() if isinstance(x, LNSTensor)} == {
        "bias",
        "parametrizations.weight.original0",
        "parametrizations.weight.original1",
    }
    assert isinstance(model.weight, LNSTensor)  # computed in LNS from the two


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_modules_keep_their_lists_of_weights(kind):
    model = kind(3, 2, num_layers=2)
    for change in (lambda: convert(model, lns16), lambda: to_float(model)):
        change()
        assert all(a is getattr(model, b) for a, b in zip(model._flat_weights, model._flat_weights_names, strict=True))
        assert not model._weights_have_changed()
    model(torch.ones(1, 1, 3))


# Optimizers made before ---------------------------------------------------------------------------------------------


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def test_an_optimizer_made_before_trains_the_converted_parameters():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    twin = nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    convert(twin, lns16)
    other = torch.optim.SGD(twin.parameters(), lr=0.5, momentum=0.5)
    convert(model, lns16)
    for _ in range(2):
        step(model, optimizer)
        step(twin, other)
    check(model.weight, lns16, twin.weight._words)
    assert isinstance(optimizer.state[model.weight]["momentum_buffer"], LNSTensor)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_state_from_before_is_refused_at_the_next_step(kind):
    options = {"lr": 0.5, "momentum": 0.5} if kind is torch.optim.SGD else {}
    model = nn.Linear(3, 2)
    optimizer = kind(model.parameters(), **options)
    step(model, optimizer)
    convert(model, lns16)
    with pytest.raises(RuntimeError, match=r"cannot write LNS words into a plain torch\.float32 tensor$"):
        step(model, optimizer)
    fresh = kind(model.parameters(), **options)
    step(model, fresh)
    to_float(model)
    with pytest.raises(RuntimeError, match=r"cannot write LNS words into a plain torch\.float32 tensor$"):
        step(model, fresh)


# Saved states -------------------------------------------------------------------------------------------------------


def test_a_saved_state_is_loaded_with_torchs_safe_default():
    model = convert(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), lns16)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    other = convert(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), lns16)
    other.load_state_dict(state)
    for name, tensor in model.state_dict().items():
        mine = other.state_dict()[name]
        assert type(mine) is type(tensor)
        assert torch.equal(mine._words, tensor._words) if isinstance(mine, LNSTensor) else torch.equal(mine, tensor)
    assert other[0].weight.requires_grad and isinstance(other[0].weight, nn.Parameter)


def test_a_whole_parameter_is_loaded_with_torchs_safe_default():
    model = convert(nn.Linear(3, 2), lns16)
    file = io.BytesIO()
    torch.save(dict(model.named_parameters()), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)["weight"]
    check(loaded, lns16, model.weight._words)
    assert isinstance(loaded, nn.Parameter)


def test_a_float_state_is_encoded_on_loading():
    source, model = nn.Linear(3, 2), convert(nn.Linear(3, 2), lns16)
    model.load_state_dict(source.state_dict())
    check(model.weight, lns16, encoded(source.weight))


def test_states_that_do_not_fit_are_refused():
    model, state = convert(nn.Linear(3, 2), lns16), nn.Linear(3, 2).state_dict()
    with pytest.raises(RuntimeError, match=r"operands of two formats, lns16 and lns8"):
        model.load_state_dict(convert(nn.Linear(3, 2), lns8).state_dict())
    with pytest.raises(RuntimeError, match=r"cannot write LNS words into a plain torch\.float32 tensor"):
        nn.Linear(3, 2).load_state_dict(model.state_dict())
    state["weight"][0, 0] = math.nan
    with pytest.raises(RuntimeError, match=r"\"weight\".*lns16 has no word for NaN"):
        model.load_state_dict(state)


# What is refused ----------------------------------------------------------------------------------------------------


def with_nan(what):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    tensor = dict(model.named_parameters()) | dict(model.named_buffers())
    tensor[what].data[1] = math.nan
    return model


def with_nan_in_the_gradient():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    model[1].bias.grad = torch.tensor([0.0, math.nan])
    return model


class Named(nn.Parameter):
    pass


def with_a_class_of_its_own():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    model[1].weight = Named(torch.ones(2, 2))
    return model


NAN = "cannot be converted: lns16 has no word for NaN; found one in the values to encode"
REFUSED = {
    "NaN in a weight": (lambda: with_nan("1.weight"), ValueError, f"parameter '1.weight' {NAN}"),
    "NaN in a buffer": (lambda: with_nan("1.running_var"), ValueError, f"buffer '1.running_var' {NAN}"),
    "NaN in a gradient": (with_nan_in_the_gradient, ValueError, f"parameter '1.bias' {NAN}"),
    "complex": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2, dtype=torch.complex64)),
        TypeError,
        "parameter '1.weight' cannot be converted: values must be real, not torch.complex64",
    ),
    "lazy": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.LazyLinear(2)),
        TypeError,
        "parameter '1.weight' is not initialised yet; run the module on one (plain) batch first",
    ),
    "meta": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2, device="meta")),
        ValueError,
        "parameter '1.weight' cannot be converted: a tensor on the meta device has no values to encode",
    ),
    "class": (
        with_a_class_of_its_own,
        TypeError,
        "parameter '1.weight' must be of class Tensor, Parameter or LNSTensor, not Named",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_names_the_tensor_and_changes_nothing(what):
    make, error, text = REFUSED[what]
    model = make()
    before = [(name, x, type(x), repr(x)) for name, x in contents(model).items()]
    with pytest.raises(error, match=exactly(text)):
        convert(model, lns16)
    for (name, x, kind, shown), (name_now, x_now) in zip(before, contents(model).items(), strict=True):
        assert (name, kind, shown) == (name_now, type(x_now), repr(x_now))
        assert x is x_now


def test_a_lazy_module_converts_once_it_is_initialised():
    model = nn.LazyLinear(2)
    model(torch.ones(1, 3))
    assert convert(model, lns16).weight.shape == (2, 3)


def test_a_pending_backward_pass_is_respected():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    result = model(torch.ones(1, 3)).sum()
    with pytest.raises(RuntimeError, match=exactly(HELD.format("parameter '1.weight'"))):
        convert(model, lns16)
    assert not any(isinstance(x, LNSTensor) for x in model.parameters())
    result.backward()  # goes on as if nothing had been asked
    convert(model, lns16)
    result = model(torch.ones(1, 3)).sum()
    with pytest.raises(RuntimeError, match=exactly(HELD.format("parameter '1.weight'"))):
        to_float(model)
    result.backward()
    assert to_float(model)[1].weight.grad.dtype == torch.float32


def test_a_pending_backward_pass_that_holds_no_weight_fails_later():
    model = nn.Linear(3, 2)
    result = model(torch.ones(1, 3)).sum()  # only the input is saved for the gradient of the weight
    convert(model, lns16)
    with pytest.raises(RuntimeError, match="poisoned by swap_tensors"):
        result.backward()


def test_a_weak_reference_is_respected_and_recurrent_lists_survive_the_refusal():
    model = nn.Sequential(nn.GRU(2, 2), nn.Linear(2, 2))
    reference = weakref.ref(model[1].bias)
    with pytest.raises(RuntimeError, match=exactly(HELD.format("parameter '1.bias'"))):
        convert(model, lns16)
    assert not any(isinstance(x, LNSTensor) for x in model.parameters())
    assert len(model[0]._flat_weight_refs) == 4
    assert reference() is model[1].bias
    del reference
    gc.collect()
    convert(model, lns16)


def test_the_old_weight_norm_holds_its_parameters():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = nn.utils.weight_norm(nn.Linear(3, 2))
    with pytest.raises(RuntimeError, match=exactly(HELD.format("parameter 'weight_g'"))):
        convert(model, lns16)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            nn.Parameter(torch.ones(2)),
            "model must be a torch.nn.Module, not Parameter; xlnstorch.lnstensor converts a single tensor",
        ),
        (
            nn.Linear(1, 1).state_dict(),
            "model must be a torch.nn.Module, not OrderedDict; load_state_dict of a converted model encodes the "
            "values of a state_dict",
        ),
        (nn.Linear, "model must be a torch.nn.Module, not type"),
        (None, "model must be a torch.nn.Module, not NoneType"),
    ],
    ids=["parameter", "state", "class", "None"],
)
def test_what_is_not_a_model(model, text):
    with pytest.raises(TypeError, match=exactly(text)):
        convert(model, lns16)
    with pytest.raises(TypeError, match=exactly(text)):
        to_float(model)


@pytest.mark.parametrize("format", ["lns16", None, torch.float32])
def test_what_is_not_a_format(format):
    with pytest.raises(
        TypeError, match=exactly(f"format must be an LNSFormat such as xlnstorch.lns16, not {format!r}")
    ):
        convert(nn.Linear(1, 1), format)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, "float32", float])
def test_what_is_not_a_floating_dtype(dtype):
    with pytest.raises(TypeError, match=exactly(f"dtype must be a floating-point torch.dtype, not {dtype!r}")):
        to_float(nn.Linear(1, 1), dtype)
