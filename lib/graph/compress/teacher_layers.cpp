#include "graph/compress/teacher_layers.h"

#include <ATen/core/grad_mode.h>

#include <map>

#include "base/error.h"
#include "base/kinds/shape_text.h"
#include "base/text.h"
#include "storage/huggingface/folder_weights.h"

namespace dslaunch::graph {

namespace {

constexpr const char* kKey = "compression_training.layer_reduction";

using Named = std::map<std::string, const ModelParameter*>;

// Returns the parameters of MODEL by each of their names.
Named by_name(const Model& model) {
    Named named;
    for (const ModelParameter& parameter : model.parameters()) {
        named[parameter.name] = &parameter;
        for (const std::string& alias : parameter.aliases) named[alias] = &parameter;
    }
    return named;
}

bool has_module(const Named& named, const std::string& module) {
    const auto found = named.lower_bound(module + ".");
    return found != named.end() && found->first.starts_with(module + ".");
}

// Throws Error{kConfig}, naming KEY, if no module and no parameter has the name MODULE. NAMED: the
// parameters of the model. WHOSE: the model's name in the message.
void require_module(const Named& named, const std::string& module, const char* whose,
                    const char* key) {
    if (has_module(named, module) || named.count(module) > 0) return;
    fail(ExitCode::kConfig,
         "{}.{}: {} has no module `{}` with parameters; the first parameter is `{}`", kKey, key,
         whose, printable(module), named.empty() ? "" : printable(named.begin()->first));
}

class Taker {
  public:
    Taker(const Model& model, const Model& teacher)
        : mine_(by_name(model)), theirs_(by_name(teacher)) {}

    [[nodiscard]] bool has(const std::string& module) const { return has_module(mine_, module); }

    // Takes the parameters of module MINE from the teacher's module THEIRS. KEY: the config's key
    // for both modules, for messages.
    void take(const std::string& mine, const std::string& theirs, const char* key) const {
        require_module(mine_, mine, "the model", key);
        require_module(theirs_, theirs, "the teacher", key);
        for (const auto& [name, parameter] : mine_) {
            const bool is_it = name == mine || name.starts_with(mine + ".");
            if (is_it) copy(*parameter, theirs + name.substr(mine.size()));
        }
    }

  private:
    void copy(const ModelParameter& parameter, const std::string& name) const {
        const auto found = theirs_.find(name);
        if (found == theirs_.end())
            fail(ExitCode::kInput, "{}: the teacher has no `{}` for `{}`", kKey, printable(name),
                 printable(parameter.name));
        const at::Tensor& source = found->second->tensor;
        at::Tensor tensor = parameter.tensor;
        if (tensor.sizes() != source.sizes())
            fail(ExitCode::kInput, "{}: `{}` has the shape {}, but the teacher's `{}` has {}", kKey,
                 printable(parameter.name), shape(tensor), printable(name), shape(source));
        const at::NoGradGuard no_grad;
        tensor.set_data(source.detach().to(tensor.scalar_type()));
    }

    [[nodiscard]] static std::string shape(const at::Tensor& tensor) {
        return shape_text({tensor.sizes().data(), tensor.sizes().size()});
    }

    Named mine_;
    Named theirs_;
};

}  // namespace

void take_teacher_layers(Model& model, const config::LayerReduction& reduction,
                         const std::string& path) {
    const Model teacher = Model::load(path);
    const Taker taker(model, teacher);
    const auto layer = [&](size_t number) {
        return fmt::format("{}.{}", reduction.prefix, number);
    };
    const size_t count = reduction.teacher_layers.size();
    for (size_t i = 0; i < count; ++i)
        taker.take(layer(i), layer(static_cast<size_t>(reduction.teacher_layers[i])),
                   "module_name_prefix");
    if (count > 0 && taker.has(layer(count)))
        fail(ExitCode::kConfig,
             "{}.teacher_layer: it names {} layers, but the model has more: `{}` exists", kKey,
             count, printable(layer(count)));
    for (const std::string& other : reduction.others) taker.take(other, other, "other_module_name");
}

void require_modules(const Model& model, const std::vector<std::string>& modules) {
    const Named named = by_name(model);
    for (const std::string& module : modules)
        require_module(named, module, "the model", "other_module_name");
}

}  // namespace dslaunch::graph
