// The official JavaScript client: typed calls, apply, watch, logs and exec. Prints a JSON report.
import { Writable } from 'node:stream';
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const [kubeconfig, namespace, pod] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromFile(kubeconfig);
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);

const refused = async (call, code) => {
  await assert.rejects(call, (error) => error.code === code);
};

const steps = {
  async createReadReplace() {
    const body = { metadata: { name: 'js' }, data: { a: '1' } };
    const made = await core.createNamespacedConfigMap({ namespace, body });
    made.data.b = '2';
    const changed = await core.replaceNamespacedConfigMap({ namespace, name: 'js', body: made });
    assert.deepEqual(changed.data, { a: '1', b: '2' });
    await refused(() => core.replaceNamespacedConfigMap({ namespace, name: 'js', body: made }), 409);
    await refused(() => core.readNamespacedConfigMap({ namespace, name: 'none' }), 404);
  },
  async applyAnyKind() {
    const spec = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'js-applied', namespace }, data: { a: '1' } };
    const apply = k8s.PatchStrategy.ServerSideApply;
    const found = await objects.patch(spec, undefined, undefined, 'js', true, apply);
    assert.equal(found.metadata.managedFields[0].operation, 'Apply');
  },
  async watchChanges() {
    const { metadata } = await core.listNamespacedConfigMap({ namespace });
    const path = `/api/v1/namespaces/${namespace}/configmaps`;
    await core.deleteNamespacedConfigMap({ namespace, name: 'js' });
    const seen = await new Promise((resolve, reject) => {
      let stop = () => {};
      new k8s.Watch(config).watch(path, { resourceVersion: metadata.resourceVersion },
        (type, object) => { resolve([type, object.metadata.name]); stop(); }, reject)
        .then((controller) => { stop = () => controller.abort(); }, reject);
    });
    assert.deepEqual(seen, ['DELETED', 'js']);
  },
  async scale() {
    const labels = { app: 'js' };
    const spec = {
      paused: true, selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers: [{ name: 'c', image: 'redis:7' }] } },
    };
    await apps.createNamespacedDeployment({ namespace, body: { metadata: { name: 'js' }, spec } });
    const found = await apps.readNamespacedDeploymentScale({ namespace, name: 'js' });
    found.spec.replicas = 2;
    delete found.metadata.resourceVersion; // the controller may have written meanwhile
    await apps.replaceNamespacedDeploymentScale({ namespace, name: 'js', body: found });
    assert.equal((await apps.readNamespacedDeployment({ namespace, name: 'js' })).spec.replicas, 2);
    await apps.deleteNamespacedDeployment({ namespace, name: 'js' });
  },
  ...(pod && {
    async logs() {
      assert.match(await core.readNamespacedPodLog({ namespace, name: pod }), /hello/);
    },
    async exec() {
      let text = '';
      const out = new Writable({ write(chunk, _, done) { text += chunk; done(); } });
      const status = await new Promise((resolve, reject) => {
        new k8s.Exec(config).exec(namespace, pod, 'c', ['sh', '-c', 'echo out; exit 3'], out, null, null, false, resolve)
          .catch(reject);
      });
      assert.equal(text, 'out\n');
      assert.equal(status.details.causes[0].message, '3');
    },
  }),
};

const report = {};
for (const [name, step] of Object.entries(steps)) {
  try {
    await step();
    report[name] = 'ok';
  } catch (error) {
    report[name] = `${error.name}: ${error.message}`;
  }
}
console.log(JSON.stringify(report));
process.exit(0);
