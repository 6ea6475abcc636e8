// Operators between split layers, in forms that only models outside of the fixtures have.
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/ir/irparser.h>

#include "graph/archive/python_operators.h"
#include "graph/writes/written_values.h"
#include "support/catch.h"
#include "support/script_names.h"
#include "unit/graph/tensor/tensor_case.h"

namespace dslaunch {

using namespace graph;
using namespace plan;
namespace {

using test::named;
using test::ranks;
using test::TensorCase;
using Sizes = TensorCase::NamedSizes;

// Returns a layer of two heads around ATTENTION, which computes a [2, 2, 6, 4] from q, k and v.
std::string around_attention(const std::string& attention) {
    return "    q = torch.linear(x, self.wq).view([B, T, 2, 4]).transpose(1, 2)\n"
           "    k = torch.linear(x, self.wk, self.bk).view([B, T, 2, 4]).transpose(1, 2)\n"
           "    v = torch.linear(x, self.wv).view([B, T, 2, 4]).transpose(1, 2)\n" +
           attention + "    y = torch.linear(a.transpose(1, 2).reshape([B, T, 8]), self.wo)\n";
}

// Returns a decoder of width 12 around BODY, which computes y from x [2, 6, 12].
std::string model_around(const std::string& body) {
    return "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
           "    x = torch.embedding(self.wte, tokens)\n"
           "    B, T, C = x.size()\n" +
           body +
           "    logits = torch.linear(x + y, self.wte)\n"
           "    return torch.cross_entropy_loss(logits.flatten(0, 1), targets.flatten(), None, 1, "
           "-100, 0.0)\n";
}

Sizes attention_sizes(Sizes more = {}) {
    Sizes sizes = {{"wte", {13, 12}}, {"wq", {8, 12}}, {"wk", {8, 12}},
                   {"wv", {8, 12}},   {"bk", {8}},     {"wo", {12, 8}}};
    sizes.insert(sizes.end(), more.begin(), more.end());
    return sizes;
}

Sizes feed_forward_sizes(Sizes more = {}) {
    Sizes sizes = {{"wte", {13, 12}}, {"fc", {8, 12}}, {"fb", {8}}, {"out", {12, 8}}};
    sizes.insert(sizes.end(), more.begin(), more.end());
    return sizes;
}

struct Form {
    const char* name;
    std::string body;
    Sizes sizes;
    const char* column;  // a layer that must be split by its outputs
    const char* row;     // a layer that must be split by its inputs
};

const std::string kAttention =
    "    a = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True)\n";

const std::vector<Form> kForms = {
    {"keys behind an empty cache",
     around_attention("    empty = torch.zeros([0], dtype=x.dtype)\n"
                      "    k = torch.cat([empty, k], -2)\n"
                      "    v = torch.cat([empty, v], -2)\n" +
                      kAttention),
     attention_sizes(), "wq", "wo"},
    {"dropout of attention's own",
     around_attention("    a = torch.scaled_dot_product_attention(q, k, v, None, 0.5, True)\n"),
     attention_sizes(), "wq", "wo"},
    {"einsum",
     around_attention("    s = torch.einsum('bhqd,bhkd->bhqk', [q, k]) * 0.5\n"
                      "    a = torch.einsum('bhqk,bhkd->bhqd', [torch.softmax(s, -1), v])\n"),
     attention_sizes(), "wq", "wo"},
    {"batch and heads in one dimension",
     around_attention("    q = q.reshape([B * 2, T, 4])\n"
                      "    k = k.reshape([-1, T, 4])\n"
                      "    v = v.reshape([B * 2, -1, 4])\n"
                      "    s = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.5, -1)\n"
                      "    a = torch.bmm(s, v).view([B, 2, T, 4])\n"),
     attention_sizes(), "wq", "wo"},
    {"rotation of complex numbers",
     around_attention("    turns = torch.arange(6).unsqueeze(1) * torch.arange(1, 3) * 0.3\n"
                      "    turn = torch.polar(torch.ones([6, 2]), turns)\n"
                      "    pairs = torch.view_as_complex(q.reshape([B, 2, T, 2, 2]))\n"
                      "    q = torch.view_as_real(pairs * turn).flatten(3)\n" +
                      kAttention),
     attention_sizes(), "wq", "wo"},
    {"sinks and a bias of heads, made of parameters",
     around_attention("    s = torch.matmul(q, k.transpose(-2, -1)) + self.near.t().view([1, 2, 6, "
                      "6])\n"
                      "    sinks = self.sinks.reshape([1, -1, 1, 1]).expand([B, -1, T, 1])\n"
                      "    s = torch.softmax(torch.cat([s, sinks], -1), -1)\n"
                      "    a = torch.matmul(s[:, :, :, :6], v)\n"),
     attention_sizes({{"near", {36, 2}}, {"sinks", {2}}}), "wq", "wo"},
    {"keys in another order, and scores written elsewhere",
     around_attention("    back = torch.arange(5, -1, -1)\n"
                      "    at = back.view([1, 1, 6, 1]).expand([B, 2, 6, 4])\n"
                      "    k = torch.gather(k, 2, at)\n"
                      "    s = torch.matmul(q, k.transpose(-2, -1))\n"
                      "    where = back.view([1, 1, 1, 6]).expand([B, 2, 6, 6])\n"
                      "    s = torch.scatter(torch.zeros_like(s), -1, where, s)\n"
                      "    a = torch.matmul(torch.softmax(s, -1), v)\n"),
     attention_sizes(), "wq", "wo"},
    {"heads that are repeated, padded and cut",
     around_attention("    v = torch.constant_pad_nd(v, [0, 0, 1, 0], 0.5)[:, :, :-1]\n"
                      "    v = v.repeat([1, 1, 1, 2])[:, :, :, 4:]\n" +
                      kAttention),
     attention_sizes(), "wq", "wo"},
    {"a norm over what is split",
     "    h = torch.linear(x, self.fc, self.fb)\n"
     "    h = h * torch.rsqrt(h.pow(2).mean([-1], True) + 1e-6) * self.norm\n"
     "    y = torch.linear(h - h.sum([-1], True), self.out)\n",
     feed_forward_sizes({{"norm", {8}}}), "fc", "out"},
    {"a convolution of each channel",
     "    h = torch.linear(x, self.fc, self.fb).transpose(1, 2)\n"
     "    h = torch.conv1d(h, self.taps, self.tb, [1], [2], [1], 8)[:, :, :6]\n"
     "    y = torch.linear(torch.silu(h).transpose(1, 2), self.out)\n",
     feed_forward_sizes({{"taps", {8, 1, 3}}, {"tb", {8}}}), "fc", "out"},
    {"gate and up in turns",
     "    h = torch.linear(x, self.fc, self.fb)\n"
     "    y = torch.linear(torch.silu(h[:, :, ::2]) * h[:, :, 1::2], self.out)\n",
     {{"wte", {13, 12}}, {"fc", {8, 12}}, {"fb", {8}}, {"out", {12, 4}}},
     "fc",
     "out"},
    {"the largest of several",
     "    h = torch.linear(x, self.fc, self.fb).view([B, T, 4, 2])\n"
     "    h = h * torch.topk(h, 1, -1)[0] + torch.maximum(h, torch.sort(h, -1)[0])\n"
     "    y = torch.linear(h.view_as(torch.linear(x, self.fc, self.fb)), self.out)\n",
     feed_forward_sizes(), "fc", "out"},
};

}  // namespace

TEST_CASE("what models write between split layers is split too, and computes the same") {
    for (const Form& form : kForms) {
        INFO(form.name);
        const TensorCase made = TensorCase::script(model_around(form.body), form.sizes);
        const TensorPlan plan = made.split_and_check(ranks(2));
        CHECK(named(plan, form.column).rule == TensorRule::kColumn);
        CHECK(named(plan, form.row).rule == TensorRule::kRow);
    }
}

TEST_CASE("positions shared everywhere: what models write computes what it computes whole") {
    for (const Form& form : kForms) {
        INFO(form.name);
        const TensorCase made = TensorCase::script(model_around(form.body), form.sizes);
        const TensorModel tensor = make_sequence_parallel(made.model, made.lowered, made.inputs, 2);
        const TensorCheck check = made.check(tensor, made.whole());
        CHECK(check.difference < check.bound);
        CHECK_FALSE(tensor.plan.collectives.empty());
    }
}

TEST_CASE("experts' products of their own rows are split by their width") {
    // The code calls the experts' function, as transformers' programs do.
    const std::string text = model_around(
        "    rows = x.view([-1, 12])\n"
        "    ends = torch.tensor([5, 5, 12])\n"
        "    gate, up = torch.chunk(grouped_mm(rows, self.first.transpose(1, 2), ends), 2, -1)\n"
        "    y = grouped_mm(torch.silu(gate) * up, self.second, ends).view([B, T, 12])\n");
    torch::jit::Module module = test::script_module("", {{"wte", test::wave({13, 12}, 1)},
                                                         {"first", test::wave({3, 8, 12}, 2)},
                                                         {"second", test::wave({3, 4, 12}, 3)}});
    torch::jit::Function* const known = function_of_python_operator(
        *module.type()->compilation_unit(), "torch.ops.transformers.grouped_mm_fallback.default");
    module.define(text, std::make_shared<test::ScriptNames>(test::ScriptNames::Names{
                            {"grouped_mm", std::make_shared<torch::jit::FunctionValue>(known)}}));
    const TensorCase made = TensorCase::of_module(Model::adopt(module));
    const TensorPlan plan = made.split_and_check(ranks(2));
    CHECK(named(plan, "first").shard == TensorShard{1, {4, 4}});
    CHECK(named(plan, "second").shard == TensorShard{1, {4}});
}

TEST_CASE("values that a later node writes are found, and no others") {
    const auto written = [](const std::string& body) {
        torch::jit::Graph graph;
        std::unordered_map<std::string, torch::jit::Value*> values;
        torch::jit::parseIR(
            "graph(%a : Tensor, %b : Tensor):\n"
            "  %one : int = prim::Constant[value=1]()\n" +
                body + "  return (%a)\n",
            &graph, values);
        std::set<std::string> names;
        for (const torch::jit::Value* value : find_written_values(graph))
            for (const auto& [name, one] : values)
                if (one == value) names.insert(name);
        return names;
    };
    using Names = std::set<std::string>;
    // Only the value before the write counts as changed: readers of the node's result get the new
    // value.
    CHECK(written("  %c : Tensor = aten::relu(%a)\n"
                  "  %d : Tensor = aten::add_(%c, %b, %one)\n") == Names{"c"});
    CHECK(written("  %c : Tensor = aten::add(%a, %b, %one)\n").empty());
    // Changes are seen through a view, in both directions, and through a list.
    CHECK(written("  %c : Tensor = aten::relu(%a)\n"
                  "  %v : Tensor = aten::transpose(%c, %one, %one)\n"
                  "  %d : Tensor = aten::add_(%v, %b, %one)\n") == Names{"c", "v"});
    CHECK(written("  %c : Tensor = aten::relu(%a)\n"
                  "  %v : Tensor = aten::transpose(%c, %one, %one)\n"
                  "  %d : Tensor = aten::add_(%c, %b, %one)\n") == Names{"c", "v"});
    CHECK(written("  %c : Tensor = aten::relu(%a)\n"
                  "  %l : Tensor[] = prim::ListConstruct(%c, %b)\n"
                  "  %d : Tensor = aten::add_(%c, %one, %one)\n") == Names{"c", "l"});
    CHECK(written("  %c : Tensor = aten::relu(%a)\n"
                  "  %l : Tensor[] = prim::ListConstruct(%c, %b)\n"
                  "  %x : Tensor, %y : Tensor = prim::ListUnpack(%l)\n"
                  "  %d : Tensor = aten::add_(%c, %one, %one)\n") ==
          Names{"b", "c", "l", "x", "y"});
    // Only the written argument counts, and no other argument.
    CHECK(written("  %d : Tensor = aten::add_(%a, %b, %one)\n") == Names{"a"});
    // In a branch.
    CHECK(written("  %t : bool = prim::Constant[value=1]()\n"
                  "  %c : Tensor = aten::relu(%a)\n"
                  "  prim::If(%t)\n"
                  "    block0():\n"
                  "      %d : Tensor = aten::add_(%c, %b, %one)\n"
                  "      -> ()\n"
                  "    block1():\n"
                  "      -> ()\n")
              .count("c") == 1);
}

}  // namespace dslaunch
