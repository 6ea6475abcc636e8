#include "runtime/save/save_adapter.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>

#include <utility>

#include "graph/adapter/adapters.h"
#include "graph/adapter/linear_layers.h"
#include "graph/adapter/peft_form.h"
#include "graph/memory/memory_order.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::runtime {

AdapterWriter::AdapterWriter(graph::Model& model, const config::LoraConfig& lora,
                             std::string base_model, std::string folder)
    : model_(model), folder_(std::move(folder)) {
    adapter_.config = graph::describe_adapters(model, lora);
    adapter_.config.base_model = std::move(base_model);
}

void AdapterWriter::put(int parameter, std::span<const float> values) {
    const graph::ModelParameter& known = model_.parameters()[parameter];
    if (!known.tensor.requires_grad()) return;
    const at::NoGradGuard no_grad;
    const std::vector<int64_t> strides = graph::strides_in_memory(known.tensor);
    float* const data = const_cast<float*>(values.data());
    const at::Tensor brought =
        strides.empty()
            ? at::from_blob(data, known.tensor.sizes(), at::TensorOptions(at::kFloat))
            : at::from_blob(data, known.tensor.sizes(), strides, at::TensorOptions(at::kFloat));
    adapter_.tensors[known.name] = brought.clone(at::MemoryFormat::Contiguous);
}

void AdapterWriter::finish() {
    const at::NoGradGuard no_grad;
    for (const graph::ModelParameter& parameter : model_.parameters()) {
        // The tensors of parameters that were put may have no memory any more.
        const bool has_own =
            parameter.tensor.requires_grad() && adapter_.tensors.count(parameter.name) == 0;
        if (has_own)
            adapter_.tensors[parameter.name] = parameter.tensor.detach()
                                                   .to(at::kCPU, at::kFloat)
                                                   .clone(at::MemoryFormat::Contiguous);
    }
    // PEFT ties the two again if the file has both.
    for (int i = 0; i < std::ssize(model_.parameters()); ++i) {
        const auto table = adapter_.tensors.find(model_.parameters()[i].name);
        const std::string head = graph::tied_head_of(model_, i);
        if (table != adapter_.tensors.end() && !head.empty())
            adapter_.tensors[head + ".weight"] = table->second;
    }
    if (storage::model_folder_of(adapter_.config.base_model))
        graph::to_peft_form(adapter_,
                            storage::open_model_folder(adapter_.config.base_model).config);
    graph::write_adapter(adapter_, folder_);
}

}  // namespace dslaunch::runtime
