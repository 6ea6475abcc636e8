// Tensors that PyTorch wrote into a safetensors file, and records that it reads from an archive, to
// compare with.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <caffe2/serialize/inline_container.h>

#include <map>
#include <string>

#include "graph/archive/scalar_types.h"
#include "storage/files/safetensors.h"

namespace dslaunch::test {

// Returns a view of ENTRY in its file, which must outlive the view.
inline at::Tensor tensor_of(const storage::SafetensorsEntry& entry) {
    return at::from_blob(const_cast<std::byte*>(entry.bytes.data()), entry.shape,
                         graph::scalar_type_of(entry.dtype));
}

// Returns the largest difference, divided by the largest value; 0 if all values are equal.
inline double difference(const at::Tensor& ours, const at::Tensor& theirs) {
    const at::Tensor mine = ours.reshape(theirs.sizes());
    if (at::equal(mine, theirs)) return 0;
    const double largest = theirs.abs().max().item<double>();
    return (mine - theirs).abs().max().item<double>() / (largest > 0 ? largest : 1);
}

// Returns the records of the archive at PATH by name, as LibTorch reads them.
inline std::map<std::string, std::string> records_of(const std::string& path) {
    caffe2::serialize::PyTorchStreamReader reader(path);
    std::map<std::string, std::string> records;
    for (const std::string& name : reader.getAllRecords()) {
        const auto [data, bytes] = reader.getRecord(name);
        records.emplace(name, std::string(static_cast<const char*>(data.get()), bytes));
    }
    return records;
}

}  // namespace dslaunch::test
