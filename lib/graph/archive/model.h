// A model in memory, from a TorchScript archive, an exported program or a Hugging Face folder: its
// module, and its parameters and buffers by name. Data path: run config -> [here] -> lower.h, which
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

// A parameter of the model; a tied parameter is listed once. The optimizer trains it if it requires
// a gradient.
struct ModelParameter {
    std::string name;                  // the module's first name for the tensor
    std::vector<std::string> aliases;  // the other names of a tied parameter
    at::Tensor tensor;                 // leaf; requires_grad as in the archive
    // The weight whose packed elements are in TENSOR; null if TENSOR is the parameter itself.
    std::shared_ptr<const PackedWeight> packed = nullptr;
    // The classes of the modules that contain the parameter, one for each of the parameter's names
    // (storage/exported/module_class.h).
    std::vector<std::string> module_classes = {};
    // True if the memory of this parameter overlapped other untrained tensors in the archive, but
    // not all of them are views of one tensor (shared_storage.h). The parameter then has its own
    // copy of the values. The copy stays correct only if forward does not write to any of these
    // tensors.
    bool is_loose = false;
    // True for a parameter that only helps training, which final weights leave out.
    bool is_helper = false;

    // Returns true if a checkpoint may lack this parameter. LEAVES_OUT_FROZEN: checkpoints have no
    // frozen parameters.
    [[nodiscard]] bool may_be_unsaved(bool leaves_out_frozen) const {
        return (leaves_out_frozen || is_helper) && !tensor.requires_grad();
    }

    // Returns the number of elements of the weight, whether or not it is packed.
    [[nodiscard]] int64_t weight_numel() const;
};

// A tensor that forward reads or writes and that is not trained.
struct ModelBuffer {
    std::string name;
    std::vector<std::string> aliases;
    at::Tensor tensor;
    bool is_loose = false;  // see ModelParameter
    // True if a state_dict contains the buffer. NAME and ALIASES are then its names in the
    // state_dict.
    bool is_persistent = true;
    // The kind of tensor in the archive: a buffer, or a parameter or constant that forward writes.
    enum class Origin { kBuffer, kParameter, kConstant };
    Origin origin = Origin::kBuffer;
};

// A tensor of the module that shares the memory of a parameter or buffer but has another shape or
// no gradient. Forward reads it as a view of its owner.
struct ModelView {
    std::string name;  // empty: an attribute that is no parameter and no buffer
    at::Tensor owner;  // the parameter or buffer that owns the memory
    MemoryView view;
    bool is_detached = false;   // true: gradients stop here
    bool is_persistent = true;  // false: not in a state_dict
    at::Tensor tensor;          // the module's own tensor, see Model::renew_views
};

// kRequired: a Hugging Face folder must contain the weights. kIfThere: the caller needs only
// shapes, so a folder may lack the weights, PATH may be a config.json, and zeros replace missing
// weights. An archive always contains the weights.
enum class Weights { kRequired, kIfThere };

// The module of a model, and its tensors by index. Copies share the module and the tensors.
class Model {
  public:
    // Loads PATH onto the CPU, as a mapping: memory is used only when a tensor is read, and the
    // ranks of a host share pages that are never written (mapped_archive.h). PATH must not be
    // written in place while the model lives; it may be replaced by a rename. Tied parameters
    // become one tensor with all their names; tensors with another shape in the same memory become
    // views of it. Throws Error{kInput}, naming PATH, if it is missing, is not one of the three
    // kinds that can be read, has no forward, or shares memory in a way that shared_storage.h
    // refuses. Without TRUST, also throws it before any code of an archive or program runs, if the
    // code uses something that operator_policy.h does not allow.
    [[nodiscard]] static Model load(const std::string& path, Weights weights = Weights::kRequired,
                                    Trust trust = Trust::kNone,
                                    const std::vector<int64_t>& layers = {});

    // Makes a model of a module that is already in memory: the module of a test, or a module that
    // dslaunch has built.
    [[nodiscard]] static Model adopt(Module module);

    // Makes a model of MODULE in which each tensor has a single name. Tensors that share memory
    // still share it, but are not tied. Tensors in lists, and attributes that are neither
    // parameters nor buffers, are included without a name. Used for a reference computation, which
    // must not depend on the work of adopt().
    [[nodiscard]] static Model adopt_untied(Module module);

    // Return the module, and its parameters, buffers and views in the order of their indices.
    [[nodiscard]] Module& module() { return *module_; }
    [[nodiscard]] const std::vector<ModelParameter>& parameters() const { return parameters_; }
    [[nodiscard]] const std::vector<ModelBuffer>& buffers() const { return buffers_; }
    [[nodiscard]] const std::vector<ModelView>& views() const { return views_; }
    // Returns the view that is the same object as TENSOR; null if there is none.
    [[nodiscard]] const ModelView* view_of(const at::Tensor& tensor) const;
    // Makes the views in the module use the current memory of their owners. Needed after a job has
    // moved the owners to other memory. REQUIRES: owners have the sizes that they were loaded with.
    void renew_views() const;

    // Returns true if the archive says which buffers a state_dict contains. A TorchScript archive
    // says this in the extra file kUnsavedBuffers: it lists the buffers that a state_dict does not
    // contain, one name a line.
    static constexpr const char* kUnsavedBuffers = "non_persistent_buffers";
    [[nodiscard]] bool says_persistence() const { return unsaved_.has_value(); }
    // Returns the extra files for an archive of this model: kUnsavedBuffers if says_persistence()
    // is true.
    [[nodiscard]] std::unordered_map<std::string, std::string> extra_files() const;
    // Marks the buffers in NAMES as not part of the state_dict.
    void leave_unsaved(std::set<std::string> names);
    // Returns true if NAME is a buffer that the state_dict does not contain.
    [[nodiscard]] bool is_unsaved(const std::string& name) const {
        return unsaved_ && unsaved_->count(name) > 0;
    }

    // Returns false if the model comes from a folder without weights; all weights are then zeros.
    [[nodiscard]] bool has_weights() const { return has_weights_; }

    // Switches all modules to evaluation, or to training. Modules that were in evaluation when the
    // archive was saved stay in evaluation. But if all modules were in evaluation, training
    // switches all of them.
    void set_training(bool training);
    // Returns true if all modules were in evaluation when the archive was saved.
    [[nodiscard]] bool was_saved_in_evaluation() const { return was_saved_in_evaluation_; }
    // Returns the paths of the outermost modules that stay in evaluation while the others train.
    [[nodiscard]] const std::vector<std::string>& kept_in_evaluation() const {
        return kept_in_evaluation_;
    }

    // Returns the sizes that an exported program gives for forward's arguments, by name; -1 is a
    // size that may vary. A program may accept other sizes if nothing in it depends on them.
    [[nodiscard]] const std::map<std::string, std::vector<int64_t>>& argument_sizes() const {
        return argument_sizes_;
    }

    // Adds a parameter for a linear layer, and returns its index. The module does not contain this
    // parameter. REQUIRES: TENSOR is a leaf; no parameter has the name NAME.
    int add_parameter(std::string name, at::Tensor tensor, bool is_helper = false);
    // Adds a buffer that neither the module nor a state_dict contains, and returns its index.
    // REQUIRES: no buffer has the name NAME.
    int add_buffer(std::string name, at::Tensor tensor);
    // Returns the index of the buffer NAME; -1 if there is none.
    [[nodiscard]] int buffer_named(const std::string& name) const;

    // Replaces parameter INDEX by PACKED. The parameter's tensor becomes a placeholder for PACKED's
    // elements: zeros that take no memory. The caller then moves the tensor to memory that
    // PACKED->read() has filled. REQUIRES: the parameter is not trained.
    void pack_parameter(int index, std::shared_ptr<const PackedWeight> packed);

    // hold_as_buffer() turns parameter INDEX, to which forward writes, into a buffer without a
    // gradient. It returns the buffer's index; the indices of later parameters decrease by one.
    // hold_constant() adds TENSOR, a constant of the module's code, to the buffers if it is not one
    // yet. After settle_state(), both functions throw Error{kInput} and name the parameter or
    // constant. REQUIRES: the parameter is not packed.
    int hold_as_buffer(int index);
    int hold_constant(const at::Tensor& tensor);
    // Settles the state: from now on parameters and buffers keep their indices.
    void settle_state() { is_state_settled_ = true; }
    // Repeats for this model what hold_as_buffer() did to OTHER, which is a copy of this model:
    // turns the same parameters into buffers. If WITH_CONSTANTS is true, also adds the constants of
    // OTHER as buffers; the two models then share these tensors.
    void hold_like(const Model& other, bool with_constants);

    // Returns the index of the parameter (buffer) that is the same object as TENSOR; -1 if there is
    // none.
    [[nodiscard]] int parameter_index(const at::Tensor& tensor) const;
    [[nodiscard]] int buffer_index(const at::Tensor& tensor) const;

    // Frees the memory that reading parameter INDEX has used. Its values remain: the next access
    // reads the file again. Leaves alone pages that were written, and parameters that are not in
    // the archive (moved or adopted). Returns the number of bytes freed. REQUIRES: no thread is
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

    // A pointer, because copies of this object share one module.
    std::shared_ptr<Module> module_;
    std::vector<ModelParameter> parameters_;
    std::vector<ModelBuffer> buffers_;
    std::unordered_map<const c10::TensorImpl*, int> parameter_of_;
    std::unordered_map<const c10::TensorImpl*, int> buffer_of_;
    std::vector<ModelView> views_;
    std::unordered_map<const c10::TensorImpl*, int> view_of_;
    std::optional<std::set<std::string>> unsaved_;
    // The mapped files of the tensors; each tensor also keeps its own file mapped. Empty if no
    // tensor is in a file.
    std::vector<std::shared_ptr<const storage::MappedFile>> files_;
    bool has_weights_ = true;
    bool is_state_settled_ = false;
    bool was_saved_in_evaluation_ = false;
    std::vector<std::string> kept_in_evaluation_;
    std::vector<c10::intrusive_ptr<c10::ivalue::Object>> evaluating_;  // modules that never train
    std::map<std::string, std::vector<int64_t>> argument_sizes_;
};

}  // namespace dslaunch::graph
