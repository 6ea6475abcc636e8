// Values that cross a cut: containers, a tensor that occurs twice, views of parameters.
#include "graph/lower/live_values.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/catch.h"

namespace dslaunch {

using namespace graph;
namespace {

at::Tensor parameter(int64_t n) {
    return at::arange(1, n + 1, at::kFloat).set_requires_grad(true);
}

bool shares_storage(const at::Tensor& a, const at::Tensor& b) {
    return a.storage().data() == b.storage().data();
}

}  // namespace

TEST_CASE("containers cross a cut with their structure, every tensor in them detached") {
    const at::Tensor w = parameter(3);
    const at::Tensor a = w * 2, b = w * 3, c = w * 4;
    c10::Dict<std::string, at::Tensor> dict;
    dict.insert("c", c);
    const c10::IValue tuple =
        c10::ivalue::Tuple::create(c10::IValue(c10::List<at::Tensor>({a, b})), c10::IValue(),
                                   c10::IValue(int64_t{7}), c10::IValue(dict));
    const Boundary boundary = make_boundary({tuple, c10::IValue(std::vector<int64_t>{1, 2})}, {});
    REQUIRE(boundary.values.size() == 2);
    const auto& elements = boundary.values[0].toTupleRef().elements();
    REQUIRE(elements.size() == 4);
    const auto list = elements[0].toTensorVector();
    REQUIRE(list.size() == 2);
    CHECK(at::equal(list[1], b));
    CHECK(elements[1].isNone());
    CHECK(elements[2].toInt() == 7);
    const at::Tensor in_dict = elements[3].toGenericDict().at("c").toTensor();
    CHECK(at::equal(in_dict, c));
    for (const at::Tensor& tensor : {list[0], list[1], in_dict}) {
        CHECK(tensor.is_leaf());
        CHECK(tensor.requires_grad());
    }
    CHECK(boundary.producers.size() == 3);
    CHECK(boundary.values[1].toIntVector() == std::vector<int64_t>{1, 2});
}

TEST_CASE(
    "a tensor that is alive twice crosses as one, so that its gradients meet before the cut") {
    const at::Tensor w = parameter(3);
    const at::Tensor a = w * 2;
    Boundary boundary =
        make_boundary({a, c10::ivalue::Tuple::create(c10::IValue(a), c10::IValue(a))}, {});
    const auto& pair = boundary.values[1].toTupleRef().elements();
    CHECK(boundary.values[0].toTensor().is_same(pair[0].toTensor()));
    CHECK(boundary.values[0].toTensor().is_same(pair[1].toTensor()));
    CHECK(boundary.producers.size() == 1);
}

TEST_CASE("requires_grad at a cut is what the producer's tensor had") {
    const at::Tensor w = parameter(3);
    const at::Tensor mask = at::ones({3});
    const Boundary boundary = make_boundary({w * 2, mask, at::ones({3}, at::kLong)}, {});
    CHECK(boundary.values[0].toTensor().requires_grad());
    CHECK_FALSE(boundary.values[1].toTensor().requires_grad());
    CHECK_FALSE(boundary.values[2].toTensor().requires_grad());
    CHECK(boundary.producers.size() == 1);
    CHECK(boundary.leaves.size() == 1);
}

TEST_CASE(
    "a view of a parameter is cloned at a cut, and its gradient still reaches the parameter") {
    const at::Tensor w = parameter(4);
    const at::Tensor view = w.slice(0, 0, 2);
    SECTION("handed on as it is when nobody lends its storage: the control") {
        CHECK(shares_storage(make_boundary({view}, {}).values[0].toTensor(), w));
    }
    SECTION("cloned when its storage is a parameter's") {
        Boundary boundary = make_boundary({view, w}, {w.storage().unsafeGetStorageImpl()});
        CHECK_FALSE(shares_storage(boundary.values[0].toTensor(), w));
        CHECK_FALSE(shares_storage(boundary.values[1].toTensor(), w));
        CHECK(at::equal(boundary.values[0].toTensor(), view));
        torch::autograd::backward({boundary.producers[0]}, {at::full({2}, 5.0F)});
        CHECK(at::equal(w.grad(), at::tensor({5.0F, 5.0F, 0.0F, 0.0F})));
    }
}

TEST_CASE("bytes of live values count each storage once") {
    const at::Tensor a = at::zeros({10});
    const Boundary boundary = make_boundary(
        {a, a.slice(0, 0, 5), at::zeros({3}, at::kLong), c10::IValue(int64_t{1})}, {});
    CHECK(boundary.bytes() == 10 * 4 + 3 * 8);
}

}  // namespace dslaunch
