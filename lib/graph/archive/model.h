// A model in memory, from a TorchScript archive, an exported program or a folder of Hugging Face:
// its module, its parameters and buffers by name. Data path: run config -> [here] -> lower.h, which
// turns its forward into a plain graph. One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "storage/files/mapped_file.h"

namespace torch::jit {
struct Module;
}  // namespace torch::jit

namespace dslaunch::graph {

class PackedWeight;

struct ModelParameter {
    std::string name;                  // first of the module's names for the tensor
    std::vector<std::string> aliases;  // the other names of a tied parameter
    at::Tensor tensor;                 // leaf; requires_grad as in the archive
    // The weight whose elements in fewer bits TENSOR holds; null: TENSOR is the parameter itself.
    std::shared_ptr<const PackedWeight> packed = nullptr;
    // The classes of the modules that have it under its names (storage/exported/module_class.h).
    std::vector<std::string> module_classes = {};

    // Elements of the weight, packed or not.
    [[nodiscard]] int64_t weight_numel() const;
};

struct ModelBuffer {
    std::string name;
    std::vector<std::string> aliases;
    at::Tensor tensor;
};

// Weights of a folder may be left out where only shapes matter: zeros then stand for those that are
// not there, and PATH may be a config.json. Archives have theirs.
enum class Weights { kRequired, kIfThere };

class Model {
  public:
    // Loads PATH onto the CPU, as a mapping: memory is taken when a tensor is read, and pages that
    // are never written are shared with the other ranks of the host (mapped_archive.h). PATH must
    // not be written in place as long as the model lives; replacing it by rename is fine. Tied
    // parameters become one tensor under all their names; views that overlap get a storage of their
    // own. Throws Error{kInput} naming PATH when it is missing, none of the three that can be read,
    // or has no forward.
    [[nodiscard]] static Model load(const std::string& path, Weights weights = Weights::kRequired);

    // Takes a module that is already in memory (tests, models made here).
    [[nodiscard]] static Model adopt(torch::jit::Module module);

    [[nodiscard]] torch::jit::Module& module() { return *module_; }
    [[nodiscard]] const std::vector<ModelParameter>& parameters() const { return parameters_; }
    [[nodiscard]] const std::vector<ModelBuffer>& buffers() const { return buffers_; }

    // False: all weights are zeros that stand for those of a folder without any.
    [[nodiscard]] bool has_weights() const { return has_weights_; }

    // Sizes that an exported program has for forward's arguments, by name: -1 where they may
    // differ. A program may still take others, if nothing in it depends on them.
    [[nodiscard]] const std::map<std::string, std::vector<int64_t>>& argument_sizes() const {
        return argument_sizes_;
    }

    // Adds a parameter of a linear layer that is not the module's, and returns its index. REQUIRES:
    // TENSOR is a leaf; no parameter has NAME.
    int add_parameter(std::string name, at::Tensor tensor);

    // Puts PACKED in the place of parameter INDEX, whose tensor becomes PACKED's elements: zeros
    // that take no memory, until somebody moves them to where PACKED->read() has written them.
    // REQUIRES: the parameter is not trained.
    void pack_parameter(int index, std::shared_ptr<const PackedWeight> packed);

    // Index of the parameter (buffer) that is the same object as TENSOR; -1: none.
    [[nodiscard]] int parameter_index(const at::Tensor& tensor) const;
    [[nodiscard]] int buffer_index(const at::Tensor& tensor) const;

    // Gives back the memory that reading parameter INDEX took; its values stay, for the next access
    // reads the file again. Pages that were written, and parameters that do not lie in the archive
    // (moved elsewhere, adopted), are left alone. Returns the bytes given back. REQUIRES: nobody is
    // writing to the parameter.
    Bytes release_pages(int index) const;

  private:
    explicit Model(torch::jit::Module module);
    void collect();
    void note_classes();

    // Shared by copies of this object, as a module is by its copies.
    std::shared_ptr<torch::jit::Module> module_;
    std::vector<ModelParameter> parameters_;
    std::vector<ModelBuffer> buffers_;
    std::unordered_map<const c10::TensorImpl*, int> parameter_of_;
    std::unordered_map<const c10::TensorImpl*, int> buffer_of_;
    // Shared with the tensors in them; empty: none lie in a file.
    std::vector<std::shared_ptr<const storage::MappedFile>> files_;
    bool has_weights_ = true;
    std::map<std::string, std::vector<int64_t>> argument_sizes_;
};

}  // namespace dslaunch::graph
