// Resolves the adapters: dslaunch.lora.
#include "config/resolve/resolve_parts.h"

namespace dslaunch::config {

void resolve_lora(KeyReader& keys, RunConfig& run) {
    const std::string section = "dslaunch.lora";
    if (!keys.has(section)) return;
    LoraConfig& lora = run.lora;
    lora.r = keys.take_integer(section + ".r");
    const std::string alpha = section + ".alpha";
    if (keys.has(alpha)) {
        lora.alpha = keys.take_number(alpha);
    } else {
        lora.alpha = static_cast<double>(lora.r);
        keys.derive(alpha, make_value(lora.alpha), "dslaunch.lora.r when not given");
    }
    lora.dropout = keys.take_number(section + ".dropout");
    if (lora.dropout == 1) keys.problem(section + ".dropout", "must be below 1");
    lora.rslora = keys.take_bool(section + ".rslora");
    lora.targets = keys.take_texts(section + ".targets");
    lora.modules_to_save = keys.take_texts(section + ".modules_to_save");
    lora.init = keys.take_text(section + ".init");
    const std::string base = keys.take_text(section + ".base");
    lora.base = base == "int8"   ? LoraBase::kInt8
                : base == "int4" ? LoraBase::kInt4
                : base == "nf4"  ? LoraBase::kNf4
                                 : LoraBase::kAsIs;
}

}  // namespace dslaunch::config
