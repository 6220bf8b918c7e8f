// The same from CommonJS.
import hutch = require('hutch');

async function main(): Promise<string> {
  const client: hutch.Client = new hutch.Client();
  const strategy: hutch.ContainerStrategy = hutch.ContainerStrategy.POOL;
  return (await client.run(strategy)).stdout;
}
void main;
