// The code of a TorchScript archive as LibTorch's importer takes it, with the lines of the Python
// program that it was made from, so that an error can name them. Part of mapped_archive.h. One
// thread at a time.
#pragma once

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/frontend/source_range.h>

#include <memory>
#include <string>

namespace dslaunch::graph {

// The source that defines the types of QUALIFIER ("__torch__.models.gpt"); null when the archive
// has none. The Python lines are read at the first request for one. Throws c10::Error for a damaged
// record.
[[nodiscard]] std::shared_ptr<torch::jit::Source> read_source(
    caffe2::serialize::PyTorchStreamReader& reader, const std::string& qualifier);

}  // namespace dslaunch::graph
