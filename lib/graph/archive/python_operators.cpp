#include "graph/archive/python_operators.h"

#include <ATen/core/stack.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <string>
#include <vector>

#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

using torch::jit::Stack;

namespace {

constexpr const char* kPrefix = "__torch__.dslaunch";

struct PythonOperator {
    const char* target;
    const char* function;
    const char* source;
};

constexpr PythonOperator kOperators[] = {
    // The product with the experts' weights in transformers 5. In the code below, 4 is the dtype
    // int64.
    {"torch.ops.transformers.grouped_mm_fallback.default", "grouped_mm", R"(
def grouped_mm(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    ends: List[int] = offs.to(4).tolist()
    parts: List[Tensor] = []
    begin = 0
    for expert in range(len(ends)):
        end = ends[expert]
        if end > begin:
            parts.append(torch.mm(input[begin:end], weight[expert]))
            begin = end
    if begin < input.size(0) or len(parts) == 0:
        parts.append(torch.zeros([input.size(0) - begin, weight.size(2)], dtype=input.dtype,
                                 device=input.device))
    return torch.cat(parts)
)"},
};

// Implements the function grouped_mm in the TorchScript above, with the same result.
void grouped_mm(Stack& stack) {
    const at::Tensor ends = torch::jit::pop(stack).toTensor().to(at::kCPU, at::kLong).contiguous();
    const at::Tensor weight = torch::jit::pop(stack).toTensor();
    const at::Tensor input = torch::jit::pop(stack).toTensor();
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (int64_t expert = 0; expert < ends.numel(); ++expert) {
        const int64_t end = ends.const_data_ptr<int64_t>()[expert];
        if (end <= begin) continue;
        parts.push_back(at::mm(input.slice(0, begin, end), weight.select(0, expert)));
        begin = end;
    }
    if (begin < input.size(0) || parts.empty()) {
        const auto& options = parts.empty() ? input.options() : parts.front().options();
        parts.push_back(
            at::zeros({input.size(0) - begin, weight.size(2)}, options.requires_grad(false)));
    }
    torch::jit::push(stack, at::cat(parts));
}

void register_python_operators() {
    static const torch::jit::RegisterOperators operators({
        torch::jit::Operator(
            "dslaunch::grouped_mm(Tensor input, Tensor weight, Tensor offs) -> Tensor", grouped_mm,
            c10::AliasAnalysisKind::FROM_SCHEMA),
    });
}

// Returns the function that NODE calls if it is one of kOperators; otherwise null.
const PythonOperator* called_by(const Node& node) {
    if (node.kind() != prim::CallFunction) return nullptr;
    const auto type = node.input(0)->type()->cast<c10::FunctionType>();
    if (type == nullptr) return nullptr;
    const std::string name = type->function()->qualname().qualifiedName();
    for (const PythonOperator& known : kOperators)
        if (name == std::string(kPrefix) + "." + known.function) return &known;
    return nullptr;
}

}  // namespace

Function* function_of_python_operator(CompilationUnit& unit, std::string_view target) {
    for (const PythonOperator& known : kOperators) {
        if (target != known.target) continue;
        const c10::QualifiedName name(c10::QualifiedName(kPrefix), known.function);
        if (Function* const defined = unit.find_function(name)) return defined;
        unit.define(c10::QualifiedName(kPrefix), known.source, torch::jit::nativeResolver(),
                    nullptr);
        return unit.find_function(name);
    }
    return nullptr;
}

void replace_python_calls(Graph& graph) {
    for_each_node(*graph.block(), [](Node& node) {
        const PythonOperator* const known = called_by(node);
        if (known == nullptr) return;
        register_python_operators();
        Node* const operation = node.owningGraph()->create(
            Symbol::fromQualString(std::string("dslaunch::") + known->function),
            node.inputs().slice(1), 1);
        operation->copyMetadata(&node);
        operation->insertBefore(&node);
        operation->output()->copyMetadata(node.output());
        node.output()->replaceAllUsesWith(operation->output());
        node.destroy();
    });
}

}  // namespace dslaunch::graph
