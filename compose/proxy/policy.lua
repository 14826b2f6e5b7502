-- What a stage's container may be. The deployment's folders, images, user and network come from the environment.
--
-- Every key that is allowed is named here, so no spelling that the engine takes for another one gets through: its keys
-- are case-insensitive, and the last of two counts. Tests: tests/e2e/docker/test_proxy.py.

local json = require("json")

local function environment(name)
    local value = os.getenv(name)
    assert(value and value ~= "", name .. " is not set")
    return value
end

local HOME = environment("SPARK_BERT_HOME")
local READABLE = { environment("SPARK_BERT_CACHE"), environment("SPARK_BERT_DATA") }
local WRITABLE = { HOME .. "/artifacts", HOME .. "/checkpoints", HOME .. "/datasets" }
local RUNS = HOME .. "/runs"
local USER = environment("SPARK_BERT_UID") .. ":" .. environment("SPARK_BERT_GID")
local NETWORKS = { "none", environment("SPARK_BERT_NETWORK") }
local IMAGES = {}
for _, name in ipairs({ "data", "train", "train-gpu" }) do
    IMAGES[#IMAGES + 1] = environment("SPARK_BERT_IMAGES") .. "/" .. name .. ":" .. environment("SPARK_BERT_TAG")
end

-- Rules: functions that say whether a value is allowed.

local function of_type(name)
    return function(value)
        return type(value) == name
    end
end

local text, whole, boolean = of_type("string"), of_type("number"), of_type("boolean")

local function one_of(allowed)
    return function(value)
        for _, one in ipairs(allowed) do
            if value == one then
                return true
            end
        end
        return false
    end
end

local function each(rule)
    return function(values)
        if type(values) ~= "table" then
            return false
        end
        for _, value in pairs(values) do
            if not rule(value) then
                return false
            end
        end
        return true
    end
end

local function only(wanted)
    return function(values)
        return type(values) == "table" and #values == 1 and one_of(wanted)(values[1])
    end
end

local function empty(value)
    return type(value) == "table" and next(value) == nil
end

local function positive(value)
    return whole(value) and value > 0
end

-- An object that has all the required keys, and of the optional ones any; null is the same as no key.
local function object(required, optional)
    return function(value, path)
        if type(value) ~= "table" then
            return false
        end
        for key in pairs(required) do
            if value[key] == nil then
                json.refuse(path .. key .. " is missing")
            end
        end
        for key, inner in pairs(value) do
            local name = path .. tostring(key):gsub("[^%w_]", "?")
            local rule = required[key] or optional[key]
            if not (inner == json.null and not required[key]) and not (rule and rule(inner, name .. ".")) then
                json.refuse(name .. " is not allowed" .. (rule and " with this value" or ""))
            end
        end
        return true
    end
end

-- Folders

local function plain(path)
    return path:sub(1, 1) == "/" and not path:find("[%c\\]") and not (path .. "/"):find("/%.%.?/")
end

local function below(path, folder)
    return path == folder or path:sub(1, #folder + 1) == folder .. "/"
end

local function writable(path)
    return one_of(WRITABLE)(path) or below(path, RUNS) and path:sub(#RUNS + 1):match("^/[%w_-]+$")
end

local function readable(path)
    for _, folder in ipairs(READABLE) do
        if below(path, folder) then
            return true
        end
    end
    return path == RUNS -- all of them, for a study and to bring MLflow up to date
end

local function mount(value, path)
    local bind = object({ Type = one_of({ "bind" }), Source = text, Target = text }, { ReadOnly = boolean })
    if not bind(value, path) then
        return false
    end
    local source = value.Source
    if not plain(source) or not (writable(source) or readable(source) and value.ReadOnly == true) then
        json.refuse(source:gsub("[^%w/._-]", "?") .. " may not be mounted" .. (value.ReadOnly and "" or " for writing"))
    end
    return true
end

-- The container

local gpu = object({ Capabilities = each(only({ "gpu" })) }, {
    Driver = one_of({ "", "nvidia" }), Count = whole, DeviceIDs = each(text), Options = empty,
})

local host = object({
    CapDrop = only({ "ALL" }),
    ReadonlyRootfs = one_of({ true }),
    SecurityOpt = only({ "no-new-privileges", "no-new-privileges:true" }),
    NetworkMode = one_of(NETWORKS),
    Memory = positive,
    PidsLimit = positive,
}, {
    Mounts = each(function(value) return mount(value, "HostConfig.Mounts.") end),
    Tmpfs = function(value) return each(text)(value) and next(value) == "/tmp" and next(value, "/tmp") == nil end,
    DeviceRequests = each(function(value) return gpu(value, "HostConfig.DeviceRequests.") end),
    LogConfig = object({}, { Type = one_of({ "", "json-file", "local" }), Config = each(text) }),
    Init = boolean, MemorySwap = whole, NanoCpus = whole, CpuShares = whole, ShmSize = whole, AutoRemove = boolean,
    IpcMode = one_of({ "", "private" }), Privileged = one_of({ false }), PortBindings = empty, Ulimits = empty,
})

local container = object({ Image = one_of(IMAGES), User = one_of({ USER }), HostConfig = host }, {
    Cmd = each(text), Env = each(text), Labels = each(text), WorkingDir = text, Hostname = text,
    AttachStdin = boolean, AttachStdout = boolean, AttachStderr = boolean, OpenStdin = boolean, StdinOnce = boolean,
    Tty = boolean, NetworkDisabled = boolean, StopSignal = text, StopTimeout = whole,
})

core.register_action("check_create", { "http-req" }, function(txn)
    local good, refusal = pcall(function()
        if not container(json.read(txn.f:req_body()), "") then
            json.refuse("the body is not an object")
        end
    end)
    if not good then
        -- An error of this file's own refuses too.
        txn:set_var("txn.refusal", type(refusal) == "table" and refusal.reason or "the body could not be checked")
    end
end)
