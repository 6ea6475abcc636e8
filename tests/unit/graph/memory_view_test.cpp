// Tensors of one storage as views of each other, and which of them own the memory.
#include "graph/memory/memory_view.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <random>

#include "base/error.h"
#include "graph/memory/shared_storage.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace graph;
namespace {

// Returns the result of GRAPH, which has one input, for TENSOR.
at::Tensor run(const std::shared_ptr<torch::jit::Graph>& graph, const at::Tensor& tensor) {
    torch::jit::GraphFunction function("run", graph, nullptr);
    torch::jit::Stack stack = {tensor};
    function.run(stack);
    return stack.front().toTensor();
}

bool is_same_place(const at::Tensor& a, const at::Tensor& b) {
    if (a.const_data_ptr() != b.const_data_ptr() || a.sizes() != b.sizes()) return false;
    for (int64_t d = 0; d < a.dim(); ++d)
        if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
    return true;
}

void check_view(const at::Tensor& base, const at::Tensor& view) {
    INFO("base " << base.sizes() << base.strides() << base.storage_offset() << ", view "
                 << view.sizes() << view.strides() << view.storage_offset());
    const std::optional<MemoryView> made = MemoryView::make(base, view);
    REQUIRE(made.has_value());
    CHECK(is_same_place(made->of(base), view));
    const auto graph = std::make_shared<torch::jit::Graph>();
    graph->registerOutput(made->insert(*graph, graph->addInput()));
    CHECK(is_same_place(run(graph, base), view));
    // A copy with other strides gives the same elements.
    const at::Tensor copy = base.transpose(0, -1).contiguous().transpose(0, -1);
    CHECK(made->of(copy).equal(view));
}

std::vector<int> owners(const std::vector<SharingTensor>& tensors) {
    std::vector<int> all;
    for (const TensorHome& home : find_homes(tensors)) all.push_back(home.owner);
    return all;
}

std::string refusal(const std::vector<SharingTensor>& tensors) {
    return test::error_of(ExitCode::kInput, [&] { static_cast<void>(find_homes(tensors)); });
}

SharingTensor trained(const std::string& name, const at::Tensor& tensor) {
    return {name, tensor.detach().set_requires_grad(true), true};
}

}  // namespace

TEST_CASE("a tensor is a view of another one in its storage, by operators on that one") {
    const at::Tensor memory = at::arange(240, at::kFloat);
    const at::Tensor base = memory.slice(0, 24, 144).view({4, 5, 6});
    check_view(base, base);
    check_view(base, base.permute({2, 0, 1}));
    check_view(base, base.unsqueeze(1).unsqueeze(-1));
    check_view(base, base.view({20, 6}));
    check_view(base, base.view({20, 6}).t());
    check_view(base, base.select(0, 2));
    check_view(base, base.select(1, 3));
    check_view(base, base.select(2, 0));
    check_view(base, base.slice(1, 1, 5, 2).slice(2, 0, 6, 5));
    check_view(base, base.slice(0, 1, 3).permute({1, 2, 0}));
    check_view(base, memory.slice(0, 30, 31));
    check_view(base, memory[30]);
    check_view(base.permute({1, 2, 0}), base.view({6, 20}));
    check_view(base.permute({2, 1, 0}), base.select(1, 2));
    check_view(base, base.select(0, 1).unsqueeze(0).expand({3, 5, 6}));
    CHECK(!MemoryView::make(base, base.unsqueeze(0).expand({2, 4, 5, 6}))->is_whole());
    // The tensor's own elements in another order, with gaps between them.
    const at::Tensor gaps = memory.slice(0, 0, 60).view({6, 10}).slice(0, 0, 6, 2).slice(1, 1, 4);
    check_view(gaps, gaps.t().unsqueeze(0));
}

TEST_CASE("every regular part of a dense tensor is a view of it") {
    std::mt19937 random(7);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
    const at::Tensor memory = at::arange(5000, at::kFloat);
    for (int i = 0; i < 500; ++i) {
        const at::Tensor base =
            memory.slice(0, 17, 17 + 3 * 4 * 7 * 5)
                .view({3, 4, 7, 5})
                .permute(i % 2 == 0 ? at::IntArrayRef{0, 1, 2, 3} : at::IntArrayRef{2, 0, 3, 1});
        at::Tensor part = base;
        for (int64_t d = 0; d < 4; ++d) {
            const int64_t begin = below(part.size(d));
            part = part.slice(d, begin, begin + 1 + below(part.size(d) - begin), 1 + below(3));
        }
        if (i % 3 == 0) part = part.permute({3, 1, 0, 2});
        if (i % 5 == 0) part = part.select(1, 0);
        check_view(base, part);
    }
}

TEST_CASE("what is no part of a tensor, or of another type, is no view of it") {
    const at::Tensor memory = at::arange(40, at::kFloat);
    const at::Tensor base = memory.slice(0, 10, 30);
    CHECK(!MemoryView::make(base, memory.slice(0, 9, 11)));
    CHECK(!MemoryView::make(base, memory.slice(0, 29, 31)));
    CHECK(!MemoryView::make(base, memory.slice(0, 0, 40)));
    CHECK(!MemoryView::make(base.slice(0, 0, 1).expand({3}), base.slice(0, 0, 1)));
    CHECK(!MemoryView::make(base, base.view(at::kInt)));
    // The elements in a tensor's gaps do not belong to it.
    CHECK(!MemoryView::make(memory.slice(0, 0, 40, 2), memory.slice(0, 0, 10)));
}

TEST_CASE("of tensors that share memory, what trains owns it, else the largest does") {
    const at::Tensor memory = at::arange(48, at::kFloat);
    const at::Tensor matrix = memory.slice(0, 0, 24).view({4, 6});
    const at::Tensor rest = memory.slice(0, 24, 48);
    // Neighbours in one storage are independent.
    CHECK(owners({trained("a", matrix), trained("b", rest)}) == std::vector<int>{0, 1});
    const at::Tensor wide = memory.view({4, 12});
    CHECK(owners({trained("left", wide.slice(1, 0, 6)), trained("right", wide.slice(1, 6, 12))}) ==
          std::vector<int>{0, 1});
    CHECK(owners({trained("a", matrix), trained("b", matrix.t()), {"row", matrix[1], false}}) ==
          std::vector<int>{0, 0, 0});
    CHECK(owners({{"frozen", matrix, true}, trained("b", matrix.t()), {"c", rest, false}}) ==
          std::vector<int>{1, 1, 2});
    CHECK(owners({{"row", matrix[1], false}, {"all", matrix, false}, {"p", matrix.t(), true}}) ==
          std::vector<int>{2, 2, 2});
    // An attribute without a name owns no memory of one with a name.
    CHECK(owners({{"row", matrix[1], false}, {"", matrix, false}}) == std::vector<int>{0, 1});
    const auto loose =
        find_homes({{"a", memory.slice(0, 0, 20), false}, {"b", memory.slice(0, 10, 30), false}});
    CHECK((loose[0].is_loose && loose[1].is_loose && !loose[0].view && !loose[1].view));
    CHECK_FALSE(find_homes({{"a", matrix, false}, {"b", rest, false}})[0].is_loose);
}

TEST_CASE("memory that two tensors would train, or one train and the other see, is refused") {
    const at::Tensor memory = at::arange(48, at::kFloat);
    const at::Tensor first = memory.slice(0, 0, 24), second = memory.slice(0, 16, 40);
    const std::string both = refusal({trained("a", first), trained("b", second)});
    CHECK_THAT(both, Catch::Contains("the parameter `a` (elements 0 to 23 of one storage) and the "
                                     "parameter `b` (elements 16 to 39 of one storage) overlap") &&
                         Catch::Contains("both are trained") && Catch::Contains(".clone()"));
    CHECK_THAT(refusal({trained("a", first), trained("part", first.slice(0, 0, 4))}),
               Catch::Contains("`part`"));
    CHECK_THAT(refusal({trained("a", first), {"all", memory, false}}),
               Catch::Contains("the buffer `all`") && Catch::Contains("`a` is trained"));
    CHECK_THAT(refusal({trained("a", first), {"bits", first.view(at::kInt), false}}),
               Catch::Contains("the buffer `bits`"));
}

TEST_CASE("copies of tensors that share a storage share one") {
    const at::Tensor memory = at::arange(24, at::kFloat);
    const std::vector<at::Tensor> copies = copied_together(
        {memory.slice(0, 4, 16).view({3, 4}), memory.slice(0, 4, 16).view({3, 4}).t(),
         at::arange(3, at::kLong), memory.slice(0, 20, 24), at::empty({0})},
        at::kDouble);
    CHECK(copies[0].scalar_type() == at::kDouble);
    CHECK(copies[2].scalar_type() == at::kLong);
    CHECK(copies[0].equal(memory.slice(0, 4, 16).view({3, 4}).to(at::kDouble)));
    CHECK(is_same_place(copies[0].t(), copies[1]));
    copies[0].zero_();
    CHECK(copies[1].sum().item<double>() == 0);
    CHECK(copies[3].equal(memory.slice(0, 20, 24).to(at::kDouble)));
    CHECK(memory[4].item<float>() == 4);
}

}  // namespace dslaunch
