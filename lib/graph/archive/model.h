// A model in memory, from a TorchScript archive, an exported program or a folder of Hugging Face:
// its module, its parameters and buffers by name. Data path: run config -> [here] -> lower.h, which
// turns its forward into a plain graph. One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "graph/memory/memory_view.h"
#include "graph/trust/trust.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::graph {

class PackedWeight;
struct SharingTensor;

struct ModelParameter {
    std::string name;                  // first of the module's names for the tensor
    std::vector<std::string> aliases;  // the other names of a tied parameter
    at::Tensor tensor;                 // leaf; requires_grad as in the archive
    // The weight whose elements in fewer bits TENSOR holds; null: TENSOR is the parameter itself.
    std::shared_ptr<const PackedWeight> packed = nullptr;
    // The classes of the modules that have it under its names (storage/exported/module_class.h).
    std::vector<std::string> module_classes = {};
    // True if it overlapped tensors in the archive that are not views of each other and do not
    // train (shared_storage.h): its values are right as long as forward writes no such tensor.
    bool is_loose = false;

    // Elements of the weight, packed or not.
    [[nodiscard]] int64_t weight_numel() const;
};

struct ModelBuffer {
    std::string name;
    std::vector<std::string> aliases;
    at::Tensor tensor;
    bool is_loose = false;  // as for a parameter
    // False: a state_dict has it under no name. Else NAME and ALIASES are those that it has.
    bool persistent = true;
    // Its value when the archive was saved, if forward writes it.
    enum class Origin { kBuffer, kParameter, kConstant };
    Origin origin = Origin::kBuffer;
};

// A tensor of the module that lies in the memory of a parameter or buffer with another shape, or
// that takes no part in its gradient. Forward reads it as a view of that one.
struct ModelView {
    std::string name;  // empty: an attribute that is no parameter and no buffer
    at::Tensor owner;  // the parameter or buffer that has the memory
    MemoryView view;
    bool detached = false;   // true: gradients stop here
    bool persistent = true;  // false: a state_dict leaves it out
    at::Tensor tensor;       // the module's own, see Model::renew_views
};

// Weights of a folder may be left out if only shapes matter: zeros then stand for missing ones, and
// PATH may be a config.json. Archives have theirs.
enum class Weights { kRequired, kIfThere };

class Model {
  public:
    // Loads PATH onto the CPU, as a mapping: memory is taken when a tensor is read, and pages that
    // are never written are shared with the other ranks of the host (mapped_archive.h). PATH must
    // not be written in place as long as the model lives; replacing it by rename is fine. Tied
    // parameters become one tensor under all their names, and names that share its memory in
    // another shape become views of it. Throws Error{kInput} naming PATH when it is missing, none
    // of the three that can be read, has no forward, or shares memory as shared_storage.h refuses.
    // Without TRUST an archive or program whose code uses what operator_policy.h does not let in is
    // refused before any of it runs.
    [[nodiscard]] static Model load(const std::string& path, Weights weights = Weights::kRequired,
                                    Trust trust = Trust::kNone);

    // Takes a module that is already in memory (tests, models made here).
    [[nodiscard]] static Model adopt(Module module);

    // Adopts MODULE with each tensor by itself, under one name. Tensors that share memory still
    // share it, and are not tied. Finds lists and other attributes that are neither parameters nor
    // buffers too, without names. For a reference that must not agree by way of what adopt() does.
    [[nodiscard]] static Model adopt_untied(Module module);

    [[nodiscard]] Module& module() { return *module_; }
    [[nodiscard]] const std::vector<ModelParameter>& parameters() const { return parameters_; }
    [[nodiscard]] const std::vector<ModelBuffer>& buffers() const { return buffers_; }

    [[nodiscard]] const std::vector<ModelView>& views() const { return views_; }
    // Returns the view that is the same object as TENSOR; null: none.
    [[nodiscard]] const ModelView* view_of(const at::Tensor& tensor) const;
    // Lets the module's own tensors of all views lie in the present memory of their owners, which a
    // job may have moved. REQUIRES: owners have the sizes that they were loaded with.
    void renew_views() const;

    // False: the archive does not say which buffers a state_dict leaves out, as TorchScript's
    // without the extra file kUnsavedBuffers, a name a line.
    static constexpr const char* kUnsavedBuffers = "non_persistent_buffers";
    [[nodiscard]] bool says_persistence() const { return unsaved_.has_value(); }
    // Returns the extra files of an archive of this model: that one, if the model says it.
    [[nodiscard]] std::unordered_map<std::string, std::string> extra_files() const;
    // Marks buffers of NAMES as left out of a state_dict.
    void leave_unsaved(std::set<std::string> names);
    // Returns true if NAME is a buffer that a state_dict leaves out.
    [[nodiscard]] bool is_unsaved(const std::string& name) const {
        return unsaved_ && unsaved_->count(name) > 0;
    }

    // Returns false if the folder has no weights: zeros stand for them.
    [[nodiscard]] bool has_weights() const { return has_weights_; }

    // Puts all modules into evaluation, or those that train into training: parts that were in
    // evaluation when the archive was saved stay there while the rest trains. An archive that was
    // saved in evaluation as a whole trains as a whole.
    void set_training(bool training);
    [[nodiscard]] bool was_saved_in_evaluation() const { return saved_in_evaluation_; }
    // Returns the paths of the outermost modules that stay in evaluation while the rest trains.
    [[nodiscard]] const std::vector<std::string>& kept_in_evaluation() const {
        return kept_in_evaluation_;
    }

    // Returns the sizes that an exported program has for forward's arguments, by name: -1 where
    // they may differ. A program may still take others, if nothing in it depends on them.
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

    // Makes parameter INDEX, whose values forward writes, a buffer and returns its new index. Later
    // parameters move up. hold_constant() does the same for TENSOR, a constant of the module's
    // code, unless it is held already. Both throw Error{kInput} naming it once the state is
    // settled. The parameter no longer wants a gradient. REQUIRES: it is not packed.
    int hold_as_buffer(int index);
    int hold_constant(const at::Tensor& tensor);
    // Settles the state: parameters and buffers keep their indices from now on.
    void settle_state() { state_is_settled_ = true; }
    // Holds as buffers the same parameters as OTHER, the same model. WITH_CONSTANTS: its constants
    // too, the tensors themselves.
    void hold_like(const Model& other, bool with_constants);

    // Returns the index of the parameter (buffer) that is the same object as TENSOR; -1: none.
    [[nodiscard]] int parameter_index(const at::Tensor& tensor) const;
    [[nodiscard]] int buffer_index(const at::Tensor& tensor) const;

    // Gives back the memory that reading parameter INDEX took; its values stay, for the next access
    // reads the file again. Pages that were written, and parameters that do not lie in the archive
    // (moved elsewhere, adopted), are left alone. Returns the bytes given back. REQUIRES: nobody is
    // writing to the parameter.
    Bytes release_pages(int index) const;

  private:
    explicit Model(Module module);
    void collect();
    void collect_untied();
    void add_item(const SharingTensor& tensor, bool is_loose);
    void add_view(const SharingTensor& tensor, const at::Tensor& owner, MemoryView view);
    void note_classes();
    void note_modes();

    // Shared by copies of this object, as a module is by its copies.
    std::shared_ptr<Module> module_;
    std::vector<ModelParameter> parameters_;
    std::vector<ModelBuffer> buffers_;
    std::unordered_map<const c10::TensorImpl*, int> parameter_of_;
    std::unordered_map<const c10::TensorImpl*, int> buffer_of_;
    std::vector<ModelView> views_;
    std::unordered_map<const c10::TensorImpl*, int> view_of_;
    std::optional<std::set<std::string>> unsaved_;
    // Shared with the tensors in them; empty: none lie in a file.
    std::vector<std::shared_ptr<const storage::MappedFile>> files_;
    bool has_weights_ = true;
    bool state_is_settled_ = false;
    bool saved_in_evaluation_ = false;
    std::vector<std::string> kept_in_evaluation_;
    std::vector<c10::intrusive_ptr<c10::ivalue::Object>> evaluating_;  // modules that never train
    std::map<std::string, std::vector<int64_t>> argument_sizes_;
};

}  // namespace dslaunch::graph
