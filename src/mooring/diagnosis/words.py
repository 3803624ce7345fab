"""The texts of a diagnosis: its cause and its next step, in English and Chinese."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from mooring.diagnosis.facts import Diagnosis

__all__ = ["CODES", "cause", "step"]

Language = Literal["en", "zh"]


class _Words(NamedTuple):
    cause_en: str
    step_en: str
    cause_zh: str
    step_zh: str


_WORDS: Final[dict[str, _Words]] = {
    "DefinitionMissing": _Words(
        "The cluster does not serve the kind {kind} ({group}): its CustomResourceDefinition is missing.",
        "Install the operator's CustomResourceDefinitions, for Mooring's kinds: mooring crds | kubectl apply -f -",
        "集群不提供 {kind}（{group}）：缺少其 CustomResourceDefinition。",
        "请安装该 operator 的 CustomResourceDefinition；Mooring 的资源类型：mooring crds | kubectl apply -f -",
    ),
    "NotFound": _Words(
        "There is no such {kind}.",
        "Check the name and the namespace; it may have been deleted.",
        "没有这个 {kind}。",
        "请检查名称与命名空间；它可能已被删除。",
    ),
    "DeletionHeld": _Words(
        "It is being deleted, and these finalizers hold it: {finalizers}.",
        "Check that the operator that set them runs: it takes them off when it has cleaned up.",
        "正在删除，但被以下 finalizer 阻止：{finalizers}。",
        "请确认设置它们的 operator 正在运行：清理完成后由它移除。",
    ),
    "ImageMissing": _Words(
        "The image {image} of pod {pod} does not exist, or its name is wrong.",
        "Correct the image's name and tag in the spec.",
        "Pod {pod} 的镜像 {image} 不存在或名称有误。",
        "请在 spec 中更正镜像名称与标签。",
    ),
    "ImageForbidden": _Words(
        "The registry does not let the node pull the image {image} of pod {pod}.",
        "Name a Secret with the registry's credential in imagePullSecrets, or use an image that needs none.",
        "镜像仓库拒绝拉取 Pod {pod} 的镜像 {image}。",
        "请在 imagePullSecrets 中指定含仓库凭据的 Secret，或改用无需凭据的镜像。",
    ),
    "ImageNotPulled": _Words(
        "The node cannot pull the image {image} of pod {pod}.",
        "Check that the node reaches the registry; the message below says what it answered.",
        "节点无法拉取 Pod {pod} 的镜像 {image}。",
        "请检查节点能否访问镜像仓库；下方消息为仓库的回答。",
    ),
    "ImageNotHere": _Words(
        "The embedded node has no image {image} for pod {pod}: it asks no registry.",
        "Do what the message below says, or load the image: mooring image load FILE.",
        "内嵌节点没有 Pod {pod} 的镜像 {image}：它不访问镜像仓库。",
        "请按下方消息操作，或加载镜像：mooring image load FILE。",
    ),
    "CrashLoop": _Words(
        "The container {container} of pod {pod} ends again and again: {times} restarts, exit code {exit}.",
        "Read its last lines: {logs}",
        "Pod {pod} 的容器 {container} 反复退出：已重启 {times} 次，退出码 {exit}。",
        "请查看其最后的日志：{logs}",
    ),
    "OutOfMemory": _Words(
        "The container {container} of pod {pod} was killed because it used more than its memory limit of {limit}.",
        "Raise the memory limit, or lower what the service keeps in memory.",
        "Pod {pod} 的容器 {container} 超出内存上限 {limit} 被终止。",
        "请提高内存上限，或减少服务在内存中的数据。",
    ),
    "SourceMissing": _Words(
        "Pod {pod} waits for the {kind} {name}, which does not exist.",
        "Create the {kind} {name} in this namespace, or correct its name in the spec.",
        "Pod {pod} 等待的 {kind} {name} 不存在。",
        "请在此命名空间创建 {kind} {name}，或在 spec 中更正名称。",
    ),
    "PathMissing": _Words(
        "Pod {pod} needs {path} on the node {node}, which is missing there or of another type.",
        "Create it on that node, or correct the path in the spec.",
        "Pod {pod} 需要节点 {node} 上的 {path}，但该路径不存在或类型不符。",
        "请在该节点上创建它，或在 spec 中更正路径。",
    ),
    "VolumeInUse": _Words(
        "A volume of pod {pod} is still in use by another pod.",
        "It becomes free when that pod has ended. If its node is gone, delete that pod.",
        "Pod {pod} 的卷仍被另一个 Pod 使用。",
        "该 Pod 结束后卷即可释放；若其节点已失联，请删除该 Pod。",
    ),
    "MountFailed": _Words(
        "A volume of pod {pod} cannot be mounted on the node {node}.",
        "The message below is the node's: correct what it names.",
        "Pod {pod} 的卷无法挂载到节点 {node}。",
        "下方为节点的消息：请解决其指出的问题。",
    ),
    "ContainerNotMade": _Words(
        "A container of pod {pod} cannot be created on the node {node}.",
        "The message below is the node's: correct what it names.",
        "Pod {pod} 的容器无法在节点 {node} 上创建。",
        "下方为节点的消息：请解决其指出的问题。",
    ),
    "ClaimLost": _Words(
        "The volume of the claim {claim} is gone.",
        "Restore the volume, or delete the claim if its data is not needed any more.",
        "存储声明 {claim} 对应的卷已丢失。",
        "请恢复该卷；若不再需要其数据，可删除该声明。",
    ),
    "ClassMissing": _Words(
        "The claim {claim} asks for the storage class {class}, which does not exist. There are: {classes}.",
        "Choose one of these classes, or ask an administrator for {class}.",
        "存储声明 {claim} 要求的存储类 {class} 不存在。现有：{classes}。",
        "请选择现有存储类，或联系管理员创建 {class}。",
    ),
    "NoDefaultClass": _Words(
        "The claim {claim} names no storage class, and the cluster has no default one.",
        "Name a storage class in the spec, or ask an administrator to make one the default.",
        "存储声明 {claim} 未指定存储类，且集群没有默认存储类。",
        "请在 spec 中指定存储类，或请管理员设置默认存储类。",
    ),
    "ProvisioningFailed": _Words(
        "No volume could be made for the claim {claim}.",
        "The message below is the provisioner's: mend what it names, or choose another storage class.",
        "无法为存储声明 {claim} 创建卷。",
        "下方为 provisioner 的消息：请解决其指出的问题，或选择其他存储类。",
    ),
    "ClaimUnbound": _Words(
        "A claim for storage is not bound to a volume yet: {claim}.",
        "Check that the provisioner of its storage class runs, or that a matching volume is free.",
        "存储声明尚未绑定卷：{claim}。",
        "请检查其存储类的 provisioner 是否运行，或是否有匹配的空闲卷。",
    ),
    "ClaimMissing": _Words(
        "Pod {pod} needs the claim {claim}, which does not exist.",
        "If it was deleted by mistake, create it again with its volume's name; otherwise delete the pod.",
        "Pod {pod} 需要的存储声明 {claim} 不存在。",
        "若为误删，请用原卷名重新创建；否则请删除该 Pod。",
    ),
    "NoRoom": _Words(
        "No node has enough {resource} for pod {pod}: it asks for {asked}; the largest node has {free} in all.",
        "Ask for less {resource}, free some on a node, or add a node.",
        "没有节点有足够的 {resource} 运行 Pod {pod}：需要 {asked}；最大节点总量为 {free}。",
        "请减少 {resource} 请求、在节点上释放资源，或增加节点。",
    ),
    "Tainted": _Words(
        "The nodes that could run pod {pod} have taints that it does not tolerate.",
        "Add a toleration in the spec, or take the taint off a node.",
        "可运行 Pod {pod} 的节点带有其不容忍的污点。",
        "请在 spec 中添加容忍，或移除节点污点。",
    ),
    "NoMatchingNode": _Words(
        "No node matches the selector, affinity or spreading rules of pod {pod}.",
        "Relax these rules in the spec, or add nodes that match; with one pod per node there must be as many nodes.",
        "没有节点满足 Pod {pod} 的选择器、亲和性或分布规则。",
        "请放宽这些规则或增加匹配的节点；若每节点一个 Pod，节点数须足够。",
    ),
    "Unschedulable": _Words(
        "Pod {pod} finds no node.",
        "The message below is the scheduler's: it says what each node lacks.",
        "Pod {pod} 无法调度到任何节点。",
        "下方为调度器的消息，说明各节点缺少什么。",
    ),
    "QuotaExceeded": _Words(
        "The quota {quota} of the namespace is exceeded: asked for {requested}, used {used}, allowed {limited}.",
        "Ask for less, delete what is not needed in this namespace, or ask an administrator for a larger quota.",
        "超出命名空间配额 {quota}：请求 {requested}，已用 {used}，上限 {limited}。",
        "请减少请求、删除此命名空间中不需要的资源，或联系管理员提高配额。",
    ),
    "AdmissionRefused": _Words(
        "The cluster refuses what {kind} {name} needs; the rule is of {by}.",
        "The message below says what is refused: change the spec to fit, or ask the owner of that rule.",
        "集群拒绝了 {kind} {name} 所需的对象；规则来自 {by}。",
        "下方消息说明被拒绝的内容：请修改 spec 以符合规则，或联系规则的维护者。",
    ),
    "NoOperator": _Words(
        "No running operator manages this {kind}: there is no live Lease {operator}.",
        "Start its operator: mooring run, or the chart. It picks this {kind} up then.",
        "没有运行中的 operator 管理此 {kind}：没有有效的 Lease {operator}。",
        "请启动对应的 operator（mooring run 或 chart），随后它会接管此 {kind}。",
    ),
    "OtherScope": _Words(
        "The operator {operator} runs, but not for this {kind}: another scope has to manage it.",
        "Give it to the cluster's operator by the annotation {annotation}: cluster-scoped, "
        "or start an operator for this namespace and take the annotation away.",
        "operator {operator} 正在运行，但不管理此 {kind}：它属于另一作用域。",
        "添加注解 {annotation}: cluster-scoped 交由集群 operator 管理，或为此命名空间启动 operator 并去掉该注解。",
    ),
    "NotYetSeen": _Words(
        "The operator {operator} runs, and has not looked at this {kind} yet.",
        "Wait a moment; if it lasts, read the operator's log.",
        "operator {operator} 正在运行，但尚未处理此 {kind}。",
        "请稍候；若长时间如此，请查看 operator 日志。",
    ),
    "NotObserved": _Words(
        "No operator has reported on this {kind} yet.",
        "Check that its operator runs and manages this namespace.",
        "尚无 operator 上报此 {kind} 的状态。",
        "请确认其 operator 正在运行并管理此命名空间。",
    ),
    "Stalled": _Words(
        "The operator needs you: {message} ({reason})",
        "Do what the message says; the operator goes on by itself then.",
        "operator 需要您处理：{message}（{reason}）",
        "请按消息处理，之后 operator 会自动继续。",
    ),
    "Waits": _Words(
        "The operator works or waits: {message} ({reason})",
        "Nothing to do as long as this changes; the events say what happened last.",
        "operator 正在处理或等待：{message}（{reason}）",
        "只要仍有进展即无需处理；事件显示最近发生的情况。",
    ),
    "NotReady": _Words(
        "It is not ready: {message} ({reason})",
        "Look at its events and its pods' logs.",
        "尚未就绪：{message}（{reason}）",
        "请查看其事件与 Pod 日志。",
    ),
}

CODES: Final = tuple(_WORDS)
"""The codes that a diagnosis can have."""


def cause(diagnosis: Diagnosis, language: Language = "en") -> str:
    """What is wrong, in one sentence."""
    words = _WORDS[diagnosis.code]
    return _filled(words.cause_zh if language == "zh" else words.cause_en, diagnosis.params)


def step(diagnosis: Diagnosis, language: Language = "en") -> str:
    """What to do next, in one sentence."""
    words = _WORDS[diagnosis.code]
    return _filled(words.step_zh if language == "zh" else words.step_en, diagnosis.params)


def _filled(text: str, params: dict[str, str]) -> str:
    # One pass: what a parameter holds is never looked at for further places.
    return re.sub(r"\{(\w+)\}", lambda found: params.get(found.group(1), "?"), text)
