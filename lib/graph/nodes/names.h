// LibTorch's names for a graph and its parts, as all of lib/graph uses them. Only declarations:
// graph_nodes.h includes the definitions.
#pragma once

namespace c10 {
struct IValue;
struct Symbol;
namespace aten {}
namespace attr {}
namespace prim {}
}  // namespace c10

namespace torch::jit {
struct Block;
struct Code;
struct CompilationUnit;
struct Function;
struct Graph;
struct Module;
struct NamedValue;
struct Node;
struct Use;
struct Value;
struct WithInsertPoint;
}  // namespace torch::jit

namespace dslaunch::graph {

namespace aten = c10::aten;
namespace attr = c10::attr;
namespace prim = c10::prim;
using c10::IValue, c10::Symbol;
using torch::jit::Block, torch::jit::Code, torch::jit::CompilationUnit, torch::jit::Function;
using torch::jit::Graph, torch::jit::Module, torch::jit::NamedValue, torch::jit::Node;
using torch::jit::Use, torch::jit::Value, torch::jit::WithInsertPoint;

}  // namespace dslaunch::graph
