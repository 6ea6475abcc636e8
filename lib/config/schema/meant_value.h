// Values in a spelling or at a place that a config does not have, and the setting that the user
// probably meant by each: `4k`, `None`, `optimizer=AdamW`. Data path: config's tree, schema ->
// [here] -> messages of schema_check.cpp. Pure.
#pragma once

#include <string>

#include "config/read/value.h"
#include "config/schema/schema.h"

namespace dslaunch::config {

// Returns the setting that the user probably meant by VALUE at PATH, whose type it does not have:
// "--set optimizer.type=AdamW" if VALUE was given with --set, otherwise as JSON, `{"type":
// "AdamW"}` or `4000`. Returns an empty text if nothing is known.
[[nodiscard]] std::string meant_setting(const std::string& path, const Value& value);

// Returns " (--set PATH=VALUE)" for a key PATH that is suggested in place of an unknown one which
// --set gave with VALUE; PATH may lead into a section below. Returns an empty text if VALUE was not
// given with --set, or does not fit PATH.
[[nodiscard]] std::string set_text(std::string path, const Value& value);

// Returns advice for the unknown key NAME if it is not a name alone, such as `type:AdamW` of
// {type:AdamW}, which has no blank after its colon. Returns an empty text for other names.
[[nodiscard]] std::string joined_name_text(const std::string& name);

}  // namespace dslaunch::config
