#include "graph/lower/dropout_seeds.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <mutex>
#include <optional>

namespace dslaunch::graph {

using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;

namespace {

struct ThreadDraws {
    DrawKey key;
    int64_t ordinal_first = 0;
    c10::Device device = c10::kCPU;
    std::unique_lock<std::mutex> lock;
};

ThreadDraws& this_thread() {
    thread_local ThreadDraws draws;
    return draws;
}

std::mutex& generator_mutex() {
    static std::mutex mutex;
    return mutex;
}

void begin_draw(Stack& stack) {
    const int64_t trip = torch::jit::pop(stack).toInt();
    const int64_t ordinal = torch::jit::pop(stack).toInt();
    ThreadDraws& mine = this_thread();
    mine.lock = std::unique_lock(generator_mutex());
    at::Generator generator = at::globalContext().defaultGenerator(mine.device);
    const std::lock_guard inner(generator.mutex());
    generator.set_current_seed(draw_seed(mine.key, mine.ordinal_first + ordinal, trip));
}

void end_draw(Stack& /*stack*/) {
    this_thread().lock = {};
}

// TorchScript finds operators in a registry of its own; those of this file are added when the first
// segment needs them.
void register_operators() {
    static const torch::jit::RegisterOperators operators({
        torch::jit::Operator("dslaunch::begin_draw(int ordinal, int trip) -> ()", begin_draw,
                             c10::AliasAnalysisKind::CONSERVATIVE),
        torch::jit::Operator("dslaunch::end_draw() -> ()", end_draw,
                             c10::AliasAnalysisKind::CONSERVATIVE),
    });
}

// True for attention whose dropout is 0; LibTorch calls that random too.
bool attends_without_dropout(const Node& node) {
    const c10::FunctionSchema* schema = node.maybeSchema();
    const auto index =
        schema == nullptr ? std::nullopt : schema->argumentIndexWithName("dropout_p");
    if (!index) return false;
    const auto dropout = torch::jit::toIValue(node.input(static_cast<size_t>(*index)));
    return dropout && dropout->isDouble() && dropout->toDouble() == 0;
}

// splitmix64's finalizer (Steele, Lea & Flood 2014): every input bit moves every output bit.
uint64_t mix(uint64_t value) {
    value += 0x9E3779B97F4A7C15ULL;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
    return value ^ (value >> 31);
}

}  // namespace

DrawScope::DrawScope(const DrawKey& key, int64_t ordinal_first, c10::Device device) {
    ThreadDraws& mine = this_thread();
    mine.key = key;
    mine.ordinal_first = ordinal_first;
    mine.device = device;
}

DrawScope::~DrawScope() {
    this_thread().lock = {};
}

uint64_t draw_seed(const DrawKey& key, int64_t ordinal, int64_t trip) {
    uint64_t hash = mix(key.seed);
    for (const int64_t part : {key.step, key.micro_batch, ordinal, trip})
        hash = mix(hash ^ static_cast<uint64_t>(part));
    return hash;
}

bool draws(const Node& node) {
    if (attends_without_dropout(node)) return false;
    // A call that was not inlined may draw inside; dropout and attention of a tensor group's share
    // replace LibTorch's and take their ordinals.
    static const auto dropout = c10::Symbol::fromQualString("dslaunch::tensor_dropout");
    static const auto attention = c10::Symbol::fromQualString("dslaunch::tensor_attention");
    return node.kind() == c10::prim::CallMethod || node.kind() == dropout ||
           node.kind() == attention || node.isNondeterministic();
}

void insert_draw(Node* node, int64_t ordinal, Value* trip) {
    register_operators();
    torch::jit::Graph& graph = *node->owningGraph();
    torch::jit::WithInsertPoint before(node);
    Value* ordinal_value = graph.insertConstant(ordinal);
    if (trip == nullptr) trip = graph.insertConstant(static_cast<int64_t>(0));
    Node* begin =
        graph.create(c10::Symbol::fromQualString("dslaunch::begin_draw"), {ordinal_value, trip}, 0);
    begin->insertBefore(node);
    Node* end = graph.create(c10::Symbol::fromQualString("dslaunch::end_draw"), {}, 0);
    end->insertAfter(node);
}

}  // namespace dslaunch::graph
