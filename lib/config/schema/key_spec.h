// One row of the table of config keys. Data.
#pragma once

namespace dslaunch::config {

enum class KeyType {
    kBool,
    kInt,
    kFloat,
    kFloats,  // a number, or a list of two
    kString,
    kStrings,  // one string, or a list of them
    kList,
    kObject,
    kFree  // not looked into
};

enum class KeyStatus {
    kSupported,
    kWithoutEffect,  // accepted, checked, has no meaning here: note says why
    kNotYet,  // refused when it asks for something: note names what is missing or what to use
              // instead
};

struct KeySpec {
    const char* path;  // "a.b"; "*" stands for any name, "[]" for the elements of a list
    KeyType type;
    const char* fallback;  // DeepSpeed's default as YAML text ("null": none)
    const char* allowed;   // "": any; ">0"; ">=0"; "0..1" both ends; "a|b|c"
    const char* doc;
    KeyStatus status = KeyStatus::kSupported;
    const char* note = "";      // why without effect, or what is missing
    const char* only_for = "";  // types ("adam|adamw") of optimizer or scheduler that have this
                                // parameter; "": all
    const char* same_as = "";   // the key that PATH is another name of; "": none
};

}  // namespace dslaunch::config
