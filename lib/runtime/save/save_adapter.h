// The trained adapter as a folder that PEFT loads. One thread.
#pragma once

#include <string>

#include "config/run/lora_config.h"
#include "graph/adapter/adapter_folder.h"
#include "graph/archive/model.h"
#include "runtime/save/save_weights.h"

namespace dslaunch::runtime {

// Writes what MODEL trains beside its frozen weights: adapters, and modules_to_save. Values of
// other parameters are not kept.
class AdapterWriter final : public WeightSink {
  public:
    // MODEL must outlive the writer. BASE_MODEL is told to the readers of adapter_config.json.
    AdapterWriter(graph::Model& model, const config::LoraConfig& lora, std::string base_model,
                  std::string folder);

    void put(int parameter, std::span<const float> values) override;
    // Writes the folder. Throws Error{kDisk}.
    void finish() override;

  private:
    graph::Model& model_;
    graph::AdapterFolder adapter_;
    std::string folder_;
};

}  // namespace dslaunch::runtime
