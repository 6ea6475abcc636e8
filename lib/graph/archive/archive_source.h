// The code of a TorchScript archive as LibTorch's importer takes it, with the lines of the Python
// program that it was made from, so that an error can name them. Part of mapped_archive.h. One
// thread at a time.
#pragma once

#include <torch/csrc/jit/frontend/source_range.h>

#include <memory>
#include <string>

namespace dslaunch::graph {

// The source of the record NAME with TEXT. ORIGINS: the pickle beside it, which says from which
// lines of Python its bytes stem; empty: there is none. It is read at the first request for a line,
// and ignored where it is damaged.
[[nodiscard]] std::shared_ptr<torch::jit::Source> make_source(const std::string& name,
                                                              const std::string& text,
                                                              std::string origins);

}  // namespace dslaunch::graph
